// Package workflow loads declared graphs of steps: which agent may follow which. A workflow defines what is
// allowed. Package routing decides among that.
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
	// DefaultSteps is how many steps a turn may take by default (C-8). A turn with more steps is assumed to be in
	// an endless loop.
	DefaultSteps = 20
	// MaxBranches is how many branches a fork may have.
	MaxBranches = 16
)

// Workflow is a checked graph of steps. It must not be changed after Load.
type Workflow struct {
	Name          string // empty for the workflow of a single agent
	Description   string
	Entry         string
	HistoryWindow int           // how many of the latest messages agents see
	MaxSteps      int           // how many steps a turn may take
	Timeout       time.Duration // timeout of a turn whose caller sets none (0 means the default of the orchestrator, RA-25)
	Budget        budget.Limits // budget of the trace of a turn, including remote turns (OC-29)
	Steps         map[string]Step
}

// Step is one node of the graph. Exactly one of Next, Routes, Parallel and End is set. Step has one field for each
// property of a step in a workflow document, so that the type and the document can be compared easily.
type Step struct {
	Name    string
	Agent   string   // empty for a fork without a step of its own, and for a choice by strategy
	Next    string   // the step that follows
	Routes  []string // steps among which the agent chooses, or the orchestrator by Choose
	Default string   // the route to take when the agent names none or fails
	Rules   []Rule   // tried in order before the agent is asked
	End     bool     // the turn ends after this step

	Parallel   []string // first steps of the branches of a fork, which run at once
	Join       string   // where the branches of a fork meet
	Then       []Edge   // tried in order after the step, before Next and Parallel
	OnError    OnError  // what follows when the step fails
	MaxEntries int      // how often a turn may enter it (0 means no limit of its own)
	// Otherwise is the step that runs instead once the limit of this step is reached.
	Otherwise string
	// Fork is the innermost fork that has the step in a branch (empty outside of branches). Later steps see the
	// text of a step in a branch, but the session does not get it.
	Fork string

	Instances selection.Policy // how an instance of the agent is selected
	Choose    choice.Policy    // how a route is chosen when there is no agent (OC-16)
	Tools     choice.Policy    // which tools of the agent it may use (all when zero)

	Task        string   // task of the agent (empty means the user's request)
	Expects     string   // description of the expected result (may be empty)
	Constraints []string // constraints that the agent must observe
	Plan        *Plan    // tasks that the step may create, which run before Next (nil when it creates none)
}

// Chooses reports whether the orchestrator, and not an agent, chooses among the routes.
func (s Step) Chooses() bool { return s.Agent == "" && len(s.Routes) > 0 }

// Chooses reports whether any step of the workflow chooses by strategy.
func (w *Workflow) Chooses() bool {
	for _, s := range w.Steps {
		if s.Chooses() {
			return true
		}
	}
	return false
}

// Rule leads to a step without asking the agent, if its conditions hold.
type Rule struct {
	ReplyTo       string // the user's message answers this agent (no condition when empty)
	MinUnanswered int    // minimum number of consecutive user messages without an answer (no condition when 0)
	Next          string
}

// Matches reports whether the rule holds for a history whose last message is the user's.
func (r Rule) Matches(history []conversation.Message) bool {
	if r.ReplyTo != "" {
		before := len(history) - 2
		if before < 0 || history[before].Role != conversation.RoleAssistant || history[before].Author != r.ReplyTo {
			return false
		}
	}
	return countUnanswered(history) >= r.MinUnanswered
}

// countUnanswered counts the messages of the user since the last message of an agent.
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

// SingleAgent returns the workflow for a call that names an agent directly: one step that runs this agent.
func SingleAgent(agent string) *Workflow {
	return &Workflow{
		Entry: agent, HistoryWindow: DefaultWindow, MaxSteps: DefaultSteps, Budget: budget.Default(),
		Steps: map[string]Step{agent: {Name: agent, Agent: agent, End: true}},
	}
}

// Reachable returns the names of the steps that a turn can enter, beginning with the entry and in the order in
// which they can be reached.
func (w *Workflow) Reachable() []string {
	all := []string{w.Entry}
	for i := 0; i < len(all); i++ { // all grows inside the loop
		for _, name := range w.Steps[all[i]].successors() {
			if !slices.Contains(all, name) {
				all = append(all, name)
			}
		}
	}
	return all
}

// Agents returns the agents of all steps and tasks, sorted and without duplicates.
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
