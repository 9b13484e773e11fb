// Package workflow loads declared graphs of steps: which agent may follow which. A workflow says what
// is allowed, and package routing decides.
package workflow

import (
	"slices"
	"time"

	"github.com/troupe-dev/troupe/pkg/budget"
	"github.com/troupe-dev/troupe/pkg/conversation"
	"github.com/troupe-dev/troupe/services/orchestrator/internal/routing/choice"
	"github.com/troupe-dev/troupe/services/orchestrator/internal/routing/selection"
)

// Defaults and limits of a workflow.
const (
	DefaultWindow = 10 // messages that agents see (RA-21)
	// DefaultSteps is how many steps a turn may take by default (C-8). More would be a loop.
	DefaultSteps = 20
	// MaxBranches is how many branches a fork may have.
	MaxBranches = 16
)

// Workflow is a valid graph. It must not be changed after Load.
type Workflow struct {
	Name        string // empty for the workflow of a single agent
	Description string
	Entry       string
	Window      int           // how many of the latest messages agents see
	MaxSteps    int           // that a turn may take
	Timeout     time.Duration // of a turn whose caller names none (0 means the default of the orchestrator, RA-25)
	Budget      budget.Limits // of the trace of a turn, remote turns included (OC-29)
	Steps       map[string]Step
}

// Step is one node of the graph. Exactly one of Next, Routes, Parallel and End is set. It has a field
// for each thing that a workflow document can say about a step, and is not split further so that the
// two read alike.
type Step struct {
	Name    string
	Agent   string   // empty for a fork without a step of its own, and for a choice by strategy
	Next    string   // the step that follows
	Routes  []string // steps among which the agent chooses, or the orchestrator by Choose
	Default string   // the route to take when the agent names none or fails
	Rules   []Rule   // tried in order before the agent is asked
	End     bool     // the turn ends after it

	Parallel []string // first steps of the branches of a fork, which run at once
	Join     string   // where the branches of a fork meet
	Then     []Edge   // tried in order after the step, before Next and Parallel
	OnError  OnError  // what follows when the step fails
	Limit    int      // how often a turn may enter it (0 means no limit of its own)
	// Otherwise replaces the step once its limit is reached.
	Otherwise string
	// Fork is the innermost fork that the step is a branch of (empty outside of branches). The text of
	// a step in a branch is for later steps, and not for the session.
	Fork string

	Instances selection.Policy // how an instance of the agent is selected
	Choose    choice.Policy    // how a route is chosen when there is no agent (OC-16)
	Tools     choice.Policy    // which tools of the agent it may use (all when zero)

	Task        string   // what the agent is asked to do (what the user wants when empty)
	Expects     string   // what the result must be, in words (may be empty)
	Constraints []string // that the agent has to observe, in words
	Plan        *Plan    // the tasks that it may make, which run before Next (nil when it makes none)
}

// Chooses reports whether the orchestrator chooses among the routes, and not an agent.
func (s Step) Chooses() bool { return s.Agent == "" && len(s.Routes) > 0 }

// Chooses reports whether the orchestrator chooses by strategy at any step.
func (w *Workflow) Chooses() bool {
	for _, s := range w.Steps {
		if s.Chooses() {
			return true
		}
	}
	return false
}

// Rule leads to a step without asking the agent.
type Rule struct {
	ReplyTo    string // the user's message answers this agent (no condition when empty)
	Unanswered int    // at least so many messages of the user in a row have no answer (no condition when 0)
	Next       string
}

// Matches reports whether the rule holds for a history that ends with the message of the user.
func (r Rule) Matches(history []conversation.Message) bool {
	if r.ReplyTo != "" {
		before := len(history) - 2
		if before < 0 || history[before].Role != conversation.RoleAssistant || history[before].Author != r.ReplyTo {
			return false
		}
	}
	return countUnanswered(history) >= r.Unanswered
}

// countUnanswered counts the messages of the user since the last one of an agent.
func countUnanswered(history []conversation.Message) int {
	n := 0
	for _, m := range slices.Backward(history) {
		if m.Role != conversation.RoleUser {
			break
		}
		n++
	}
	return n
}

// SingleAgent returns the workflow of an agent that a call names directly.
func SingleAgent(agent string) *Workflow {
	return &Workflow{
		Entry: agent, Window: DefaultWindow, MaxSteps: DefaultSteps, Budget: budget.Default(),
		Steps: map[string]Step{agent: {Name: agent, Agent: agent, End: true}},
	}
}

// Reachable returns the names of the steps that a turn can enter: the entry first, then in the order in
// which a turn can enter them.
func (w *Workflow) Reachable() []string {
	all := []string{w.Entry}
	for i := 0; i < len(all); i++ { // all grows on the way
		for _, name := range w.Steps[all[i]].successors() {
			if !slices.Contains(all, name) {
				all = append(all, name)
			}
		}
	}
	return all
}

// Agents returns the agents of all steps and tasks, sorted, each once.
func (w *Workflow) Agents() []string {
	var all []string
	for _, s := range w.Steps {
		if s.Agent != "" {
			all = append(all, s.Agent)
		}
		if s.Plan != nil {
			all = append(all, s.Plan.Agents...)
		}
	}
	slices.Sort(all)
	return slices.Compact(all)
}
