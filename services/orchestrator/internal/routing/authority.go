package routing

import (
	"slices"
	"sync"

	"github.com/troupe-dev/troupe/internal/registry"
	"github.com/troupe-dev/troupe/pkg/failure"
	"github.com/troupe-dev/troupe/services/orchestrator/internal/routing/choice"
	"github.com/troupe-dev/troupe/services/orchestrator/internal/routing/selection"
	"github.com/troupe-dev/troupe/services/orchestrator/internal/workflow"
)

// Authority is the only place where it is decided who has a task, at which instance, and with which
// tools (contract OC-13). Agents, planners, tools and models ask; they decide nothing. Where a
// workflow leaves no choice, or an agent asked for one, a Course follows the workflow.
//
// Packages choice and selection decide, as pure functions of their input, which the decision carries.
// The authority keeps what the input of the next one needs: how many there were before. Safe for
// concurrent use.
type Authority struct {
	mu       sync.Mutex
	counters map[string]uint64
}

// NewAuthority returns an authority that has decided nothing yet.
func NewAuthority() *Authority { return &Authority{counters: map[string]uint64{}} }

// Agent chooses among the routes of a step that has no agent. Standing says how an agent is at this
// moment, so the decision is to be stored before anything is done by it. Decisions of one step take
// turns. Without a target it fails with no_worker (OC-6).
func (a *Authority) Agent(flow *workflow.Workflow, step workflow.Step, ask selection.Request, standing func(agent string) choice.Candidate) (choice.Decision, error) {
	in := choice.Input{Request: ask, Type: choice.Agent, Strategy: step.Choose.Strategy, Names: step.Choose.Names}
	in.Task, in.Constraints = step.Name, union(step.Choose.Needs, ask.Constraints)
	in.Counter = a.nextCounter(flow.Name + "/" + step.Name)
	for _, route := range step.Routes {
		c := standing(flow.Steps[route].Agent)
		c.ID, c.Priority = route, step.Choose.Priorities[route]
		in.Candidates = append(in.Candidates, c)
	}
	d := choice.Decide(in)
	if d.Target == "" {
		return d, failure.Newf(failure.NoWorker, Op, "step %s: %s", step.Name, d.Reason)
	}
	return d, nil
}

// Instance says which instance of an agent gets a step. The counter is the caller's: to ask again
// for a step that was refused is not the next one's turn.
func (*Authority) Instance(in selection.Input) selection.Decision { return selection.Decide(in) }

// Tool says which tools of its agent a step may use, those that fit best first. It fails with
// agent_contract when none is left.
func (*Authority) Tool(step workflow.Step, ask selection.Request, tools []registry.Tool) (choice.Decision, error) {
	in := choice.Input{Request: ask, Type: choice.Tool, Strategy: step.Tools.Strategy, Names: step.Tools.Names}
	for _, t := range tools {
		in.Candidates = append(in.Candidates, choice.Candidate{ID: t.Name, Name: t.Name, Type: choice.Tool, Capabilities: t.Capabilities, Available: true})
	}
	in.Task, in.Constraints = step.Name, step.Tools.Needs
	d := choice.Decide(in)
	switch {
	case len(tools) == 0:
		return d, failure.Newf(failure.AgentContract, Op, "agent %s has no tools; give it some, or remove tools from step %s", step.Agent, step.Name)
	case d.Target == "":
		return d, failure.Newf(failure.AgentContract, Op,
			"step %s may use none of the %d tools of agent %s: %s; declare what they can do, or change the step's tools", step.Name, len(tools), step.Agent, d.Reason)
	}
	return d, nil
}

// nextCounter numbers the decisions for a place, from 0.
func (a *Authority) nextCounter(place string) uint64 {
	a.mu.Lock()
	defer a.mu.Unlock()
	n := a.counters[place]
	a.counters[place]++
	return n
}

// union is two lists as one, each word once.
func union(a, b []string) []string {
	all := slices.Clone(a)
	for _, word := range b {
		if !slices.Contains(all, word) {
			all = append(all, word)
		}
	}
	return all
}
