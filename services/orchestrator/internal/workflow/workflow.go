// Package workflow is a declared graph of steps: which agent may follow which. It says
// what is allowed; package routing decides.
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
	DefaultWindow = 10 // messages that its agents see (RA-21)
	// DefaultSteps is how many steps a turn may take in a workflow that does not say (C-8):
	// more is a loop.
	DefaultSteps = 20
	// MaxBranches is how many branches a fork may have.
	MaxBranches = 16
)

// Workflow is a valid graph. It is not changed after Load.
type Workflow struct {
	Name        string // empty when it stands for a single agent
	Description string
	Entry       string
	Window      int           // how many of the latest messages agents see
	MaxSteps    int           // that a turn may take
	Timeout     time.Duration // of a turn whose caller names none; 0: the orchestrator's (RA-25)
	Budget      budget.Limits // of the trace of a turn, remote turns included (OC-29)
	Steps       map[string]Step
}

// Step is one node. Exactly one of Next, Routes, Parallel and End is set.
type Step struct {
	Name    string
	Agent   string   // empty: a fork that runs nothing itself, or a choice by strategy
	Next    string   // the step that follows
	Routes  []string // steps between which the agent chooses, or the orchestrator by Choose
	Default string   // of the routes: taken when the agent names none, or fails
	Rules   []Rule   // tried in order before the agent is asked
	End     bool     // the turn ends with it

	Parallel []string // first steps of branches that run at once
	Join     string   // of a fork: where its branches meet
	Then     []Edge   // tried in order once the step has run, before Next and Parallel
	OnError  OnError  // what becomes of it when it fails
	Limit    int      // how often it may be come to in a turn; 0: as often as the turn has steps
	// Otherwise comes in its place beyond the limit.
	Otherwise string
	// Fork is the innermost fork in a branch of which the step is; empty: in none. What it says
	// is for the steps behind it, and not for the session.
	Fork string

	Instances selection.Policy // how one of the agent's instances is chosen
	Choose    choice.Policy    // how one of the routes is chosen where there is no agent (OC-16)
	Tools     choice.Policy    // which of the agent's tools it may use; the zero Policy: all

	Task        string   // what it is asked to do; empty: what the user wants
	Expects     string   // what its result shall be, in words; empty: nobody said
	Constraints []string // that it has to keep to, in words
	Plan        *Plan    // it says what is done before Next; nil: it does not plan
}

// Chooses reports whether the orchestrator chooses among the routes, and no agent does.
func (s Step) Chooses() bool { return s.Agent == "" && len(s.Routes) > 0 }

// Chooses reports whether a turn can come to a step that does.
func (w *Workflow) Chooses() bool {
	for _, s := range w.Steps {
		if s.Chooses() {
			return true
		}
	}
	return false
}

// Rule goes to a step without asking anybody.
type Rule struct {
	ReplyTo    string // the user's message answers this agent; empty: no condition
	Unanswered int    // at least so many messages of the user have no answer; 0: no condition
	Next       string
}

// Matches reports whether the rule holds for a history that ends with the user's message.
func (r Rule) Matches(history []conversation.Message) bool {
	if r.ReplyTo != "" {
		before := len(history) - 2
		if before < 0 || history[before].Role != conversation.RoleAssistant || history[before].Author != r.ReplyTo {
			return false
		}
	}
	return unanswered(history) >= r.Unanswered
}

// unanswered counts the messages of the user since anybody else spoke.
func unanswered(history []conversation.Message) int {
	n := 0
	for _, m := range slices.Backward(history) {
		if m.Role != conversation.RoleUser {
			break
		}
		n++
	}
	return n
}

// Single is the workflow of one agent that is addressed directly.
func Single(agent string) *Workflow {
	return &Workflow{
		Entry: agent, Window: DefaultWindow, MaxSteps: DefaultSteps, Budget: budget.Default(),
		Steps: map[string]Step{agent: {Name: agent, Agent: agent, End: true}},
	}
}

// Reachable are the names of the steps that a turn can come to, entry first, in the order
// in which it can come to them.
func (w *Workflow) Reachable() []string {
	all := []string{w.Entry}
	for i := 0; i < len(all); i++ { // it grows on the way
		for _, name := range w.Steps[all[i]].successors() {
			if !slices.Contains(all, name) {
				all = append(all, name)
			}
		}
	}
	return all
}

// Agents are the names of the agents of all steps, and of those that may have tasks, sorted, each once.
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
