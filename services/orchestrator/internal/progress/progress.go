// Package progress computes the progress of the steps in a turn's plan: the stage of each step, and when the step
// reached it (contract OC-29). It derives both from the events of the turn.
package progress

import (
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/troupe-dev/troupe/pkg/failure"
	troupev1 "github.com/troupe-dev/troupe/pkg/gen/troupe/v1"
)

// Stage is the progress of a step.
type Stage string

// The stages of a step. The last three are final.
const (
	Created   Stage = "created"
	Routed    Stage = "routed"
	Executing Stage = "executing"
	Completed Stage = "completed"
	Failed    Stage = "failed"
	Cancelled Stage = "cancelled"
)

// transitions maps a stage to the stages that may follow it.
var transitions = map[Stage]map[Stage]bool{
	"":        {Created: true},
	Created:   {Routed: true, Cancelled: true},
	Routed:    {Executing: true, Cancelled: true},
	Executing: {Completed: true, Failed: true, Cancelled: true},
}

// Step is one step of a plan. The zero Step is not in the plan yet. A Step is not safe for concurrent use.
type Step struct {
	Number    int    // number of the step in the turn, from 1 (0 until it is routed)
	Name      string // name of the step in the workflow
	Agent     string
	Task      string // task of the agent (empty means the goal of the turn)
	stage     Stage
	reachedAt map[Stage]time.Time
}

// Stage returns the current stage (empty when the step is not in the plan yet).
func (s *Step) Stage() Stage { return s.stage }

// ReachedAt returns when the step reached the stage (the zero time if it did not).
func (s *Step) ReachedAt(stage Stage) time.Time { return s.reachedAt[stage] }

// IsEnded reports whether the stage of the step is final.
func (s *Step) IsEnded() bool { return s.stage != "" && len(transitions[s.stage]) == 0 }

// Advance moves the step to the given stage. When that stage cannot follow the current one, it fails with
// agent_state and changes nothing.
func (s *Step) Advance(next Stage, at time.Time) error {
	if !transitions[s.stage][next] {
		return failure.Newf(failure.AgentState, "progress.Advance", "step %s of the plan cannot become %q; it is %q", s.Name, next, s.stage)
	}
	if s.reachedAt == nil {
		s.reachedAt = map[Stage]time.Time{}
	}
	s.stage, s.reachedAt[next] = next, at
	return nil
}

var planStates = map[Stage]troupev1.PlanState{
	Created:   troupev1.PlanState_PLAN_STATE_CREATED,
	Routed:    troupev1.PlanState_PLAN_STATE_ROUTED,
	Executing: troupev1.PlanState_PLAN_STATE_EXECUTING,
	Completed: troupev1.PlanState_PLAN_STATE_COMPLETED,
	Failed:    troupev1.PlanState_PLAN_STATE_FAILED,
	Cancelled: troupev1.PlanState_PLAN_STATE_CANCELLED,
}

// Proto converts the step to the message that clients receive.
func (s *Step) Proto() *troupev1.PlanStep {
	p := &troupev1.PlanStep{Number: int32(s.Number), Step: s.Name, Agent: s.Agent, Task: s.Task, State: planStates[s.stage]}
	for stage, at := range s.reachedAt {
		stamp := timestamppb.New(at)
		switch stage {
		case Created:
			p.Created = stamp
		case Routed:
			p.Routed = stamp
		case Executing:
			p.Executing = stamp
		case Completed, Failed, Cancelled:
			p.Ended = stamp
		}
	}
	return p
}
