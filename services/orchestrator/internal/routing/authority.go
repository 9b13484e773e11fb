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

// Authority decides which agent gets a task, at which instance, and with which tools. It is the only place that
// does (contract OC-13): agents, planners, tools and models only make requests. If a workflow leaves no choice, or
// an agent has named a route, package cursor follows the workflow.
//
// Packages choice and selection make the decisions, as pure functions of an input that the decision carries. The
// authority keeps the counters that the next input needs. Safe for concurrent use.
type Authority struct {
	mu       sync.Mutex
	counters map[string]uint64
}

// NewAuthority returns an Authority whose counters are 0.
func NewAuthority() *Authority { return &Authority{counters: map[string]uint64{}} }

// ChooseAgent chooses among the routes of a step that has no agent. candidate returns the current state of an
// agent. This state can change, so the caller must store the decision before carrying it out. Concurrent decisions
// for one step get different counters. ChooseAgent fails with no_worker when no route is available (OC-6).
func (a *Authority) ChooseAgent(
	flow *workflow.Workflow, step workflow.Step, ask selection.Request, candidate func(agent string) choice.Candidate,
) (choice.Decision, error) {
	in := choice.Input{Request: ask, Type: choice.Agent, Strategy: step.Choose.Strategy, Names: step.Choose.Names}
	in.Task, in.Needs = step.Name, union(step.Choose.Needs, ask.Needs)
	in.Counter = a.nextCounter(flow.Name + "/" + step.Name)
	for _, route := range step.Routes {
		c := candidate(flow.Steps[route].Agent)
		c.ID, c.Priority = route, step.Choose.Priorities[route]
		in.Candidates = append(in.Candidates, c)
	}
	d := choice.Decide(in)
	if d.Target == "" {
		return d, failure.Newf(failure.NoWorker, Op, "step %s: %s", step.Name, d.Reason)
	}
	return d, nil
}

// ChooseInstance decides which instance of an agent gets a step. The caller provides the counter, so that a second
// decision after a rejection does not advance the round robin.
func (*Authority) ChooseInstance(in selection.Input) selection.Decision { return selection.Decide(in) }

// ChooseTools decides which tools of its agent a step may use, best match first. It fails with agent_contract if
// no tool remains.
func (*Authority) ChooseTools(step workflow.Step, ask selection.Request, tools []registry.Tool) (choice.Decision, error) {
	in := choice.Input{Request: ask, Type: choice.Tool, Strategy: step.Tools.Strategy, Names: step.Tools.Names}
	for _, t := range tools {
		in.Candidates = append(in.Candidates, choice.Candidate{ID: t.Name, Name: t.Name, Type: choice.Tool, Capabilities: t.Capabilities, Available: true})
	}
	in.Task, in.Needs = step.Name, step.Tools.Needs
	d := choice.Decide(in)
	switch {
	case len(tools) == 0:
		return d, failure.Newf(failure.AgentContract, Op, "agent %s has no tools; give it some, or remove tools from step %s", step.Agent, step.Name)
	case d.Target == "":
		return d, failure.Newf(failure.AgentContract, Op,
			"step %s may use none of the %d tools of agent %s: %s; declare what they can do, or change the step's tools",
			step.Name, len(tools), step.Agent, d.Reason)
	}
	return d, nil
}

// nextCounter returns how many decisions of the step came before, and counts one more.
func (a *Authority) nextCounter(step string) uint64 {
	a.mu.Lock()
	defer a.mu.Unlock()
	n := a.counters[step]
	a.counters[step]++
	return n
}

// union returns the words of both lists without duplicates.
func union(a, b []string) []string {
	all := slices.Clone(a)
	for _, word := range b {
		if !slices.Contains(all, word) {
			all = append(all, word)
		}
	}
	return all
}
