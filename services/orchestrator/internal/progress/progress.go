// Package progress is how far the steps of a turn's plan are: which stage each has come to, and
// when (contract OC-29). It is a function of the events of the turn.
package progress

import (
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/troupe-dev/troupe/pkg/failure"
	troupev1 "github.com/troupe-dev/troupe/pkg/gen/troupe/v1"
)

// Stage is how far a step is.
type Stage string

// The stages. The last three are ends.
const (
	Created   Stage = "created"
	Routed    Stage = "routed"
	Executing Stage = "executing"
	Completed Stage = "completed"
	Failed    Stage = "failed"
	Cancelled Stage = "cancelled"
)

// transitions has the stages that can come behind one.
var transitions = map[Stage]map[Stage]bool{
	"":        {Created: true},
	Created:   {Routed: true, Cancelled: true},
	Routed:    {Executing: true, Cancelled: true},
	Executing: {Completed: true, Failed: true, Cancelled: true},
}

// Step is one step of a plan. The zero Step is not in it yet. One goroutine uses it.
type Step struct {
	Number int    // of the step in the turn, from 1; 0 until it is routed
	Name   string // in the workflow
	Agent  string
	Task   string // what it is asked to do; empty: the goal of the turn
	stage  Stage
	at     map[Stage]time.Time
}

// Stage is how far the step is; empty when it is not in the plan yet.
func (s *Step) Stage() Stage { return s.stage }

// ReachedAt is when the step came to a stage; zero when it did not.
func (s *Step) ReachedAt(stage Stage) time.Time { return s.at[stage] }

// Ended reports whether nothing can follow.
func (s *Step) Ended() bool { return s.stage != "" && len(transitions[s.stage]) == 0 }

// Advance has the step come to its next stage. Fails with agent_state, changing nothing, when that
// cannot follow on the one that it is in.
func (s *Step) Advance(next Stage, at time.Time) error {
	if !transitions[s.stage][next] {
		return failure.Newf(failure.AgentState, "progress.To", "step %s of the plan cannot become %q; it is %q", s.Name, next, s.stage)
	}
	if s.at == nil {
		s.at = map[Stage]time.Time{}
	}
	s.stage, s.at[next] = next, at
	return nil
}

var states = map[Stage]troupev1.PlanState{
	Created:   troupev1.PlanState_PLAN_STATE_CREATED,
	Routed:    troupev1.PlanState_PLAN_STATE_ROUTED,
	Executing: troupev1.PlanState_PLAN_STATE_EXECUTING,
	Completed: troupev1.PlanState_PLAN_STATE_COMPLETED,
	Failed:    troupev1.PlanState_PLAN_STATE_FAILED,
	Cancelled: troupev1.PlanState_PLAN_STATE_CANCELLED,
}

// Proto is the step as clients see it.
func (s *Step) Proto() *troupev1.PlanStep {
	p := &troupev1.PlanStep{Number: int32(s.Number), Step: s.Name, Agent: s.Agent, Task: s.Task, State: states[s.stage]}
	for stage, at := range s.at {
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
