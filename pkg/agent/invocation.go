package agent

import (
	"cmp"
	"context"
	"slices"

	"github.com/troupe-dev/troupe/internal/loop"
	"github.com/troupe-dev/troupe/internal/stepjournal"
	"github.com/troupe-dev/troupe/pkg/conversation"
	"github.com/troupe-dev/troupe/pkg/execution"
	"github.com/troupe-dev/troupe/pkg/hook"
	"github.com/troupe-dev/troupe/pkg/llm"
	"github.com/troupe-dev/troupe/pkg/ownership"
)

// Invocation is one run of an agent.
type Invocation struct {
	Step execution.Step
	// Store is the session's state, artifacts and past; nil: there is none.
	Store hook.Store
	// Trace is what the orchestrator says of the trace.
	Trace ownership.TraceView
	// Stop, when it ends, asks the agent to stop (CO-63); nil: nobody asks.
	Stop context.Context //nolint:containedctx // a signal beside the one that ends the run
	// MaxIterations overrides that of the agent; 0 does not (CO-6).
	MaxIterations int

	numbers *hook.Numbers // of the events; nil: begin
	memory  *hook.Memory  // that the agents of a flow share; nil: one of its own
	count   *counter      // of the model calls and tool calls; nil: begin
	branch  string        // of the agent that runs this one
	call    int           // number of the run of a function
	key     string        // of it
	apart   bool          // it is the tool of another agent, or below one
	guard   loop.Guard    // of the agents above; empty: there are none
}

// Branch are the agents above the one that runs, and itself: "team.writer". It is for a Run
// of an agent's own.
func (inv Invocation) Branch() string { return inv.branch }

// Key is the identity of this run of an agent's own Run: the same in all attempts of the step,
// also in a turn that goes on with calls that waited beside it, and different for every other
// run in it. What the function asks others to do under this key is done once.
func (inv Invocation) Key() string {
	return cmp.Or(inv.key, stepjournal.CallKey(inv.Step.CallTurn(), inv.Step.Number, inv.call))
}

// Call is the number of this run of an agent's own Run among the calls of the step, from 1.
// Agents that run beside each other are numbered apart.
func (inv Invocation) Call() int { return inv.call }

// Beside is how many agents may run beside each other at the place of this run, itself included.
func (inv Invocation) Beside() int { return inv.count.beside() }

// Prompt is what an agent is asked that does not see the conversation: what the user said
// last, behind it what it is asked to do itself, and then what the steps before this one found.
func (inv Invocation) Prompt() string {
	text := prompted(inv.Step)
	if asked := inv.Step.Brief(); asked != "" {
		text += "\n\n" + asked
	}
	if prior := worked(inv.Step); len(prior) > 0 {
		text += "\n\n" + briefing(inv.Step.History, prior)
	}
	return text
}

// Untrusted is the first source of words in what the run is given that neither the user nor the
// author of the agent wrote; empty: there are none (S14). A Run that asks others hands it on.
func (inv Invocation) Untrusted() string {
	source := conversation.Untrusted(inv.Step.History)
	for _, r := range inv.Step.Prior {
		source = cmp.Or(source, r.Untrusted)
	}
	return source
}

// below is what the function of agent a is given. Agents that it runs with it are its
// children.
func (inv Invocation) below(a *Agent) Invocation {
	inv.branch = inv.path(a)
	inv.guard = a.config.Guard.Stricter(inv.guard)
	inv.call, inv.key = inv.count.next(), ""
	if j := inv.Step.Journal; j != nil && !a.flow { // a flow asks nobody itself
		inv.key = inv.kept(j, a.Name())
	}
	return inv
}

// kept is the key of a run of a function: that of the turn in which it ran first.
func (inv Invocation) kept(j execution.Journal, agent string) string {
	if e, ok := j.Replay(inv.call, execution.Intent); ok && e.Tool == agent && e.Text != "" {
		return e.Text
	}
	key := inv.Key()
	j.Record(execution.Entry{Number: inv.call, Phase: execution.Intent, Tool: agent, Text: key})
	return key
}

// path is the branch of an agent.
func (inv Invocation) path(a *Agent) string {
	if inv.branch == "" {
		return a.Name()
	}
	return inv.branch + "." + a.Name()
}

// stopped reports whether somebody asked the agent to stop.
func (inv Invocation) stopped() bool { return inv.Stop != nil && inv.Stop.Err() != nil }

// info is what handlers and tools are told of the invocation.
func (a *Agent) info(inv Invocation) hook.Info {
	s := inv.Step
	info := hook.Info{
		Agent: a.Name(), Session: s.SessionID, User: s.User, TurnID: s.TurnID, TraceID: s.TraceID,
		Turn: s.Turn, Step: s.Number, Attempt: s.Attempt, Prompt: prompted(s), Routes: s.Routes,
	}
	if a.config.Model != nil {
		info.Model = a.config.Model.Name()
		if m, ok := a.config.Model.(llm.ContextSize); ok {
			info.Context = m.ContextSize()
		}
	}
	if inv.branch != "" {
		info.Branch = inv.path(a)
	}
	return info
}

// under is ctx with what the agent acts under: a child of what the agent above it does, or of the
// turn's. Handlers, models and tools find it with execution.ContextFrom.
func (inv Invocation) under(ctx context.Context) context.Context {
	above, ok := execution.ContextFrom(ctx)
	s := inv.Step
	if !ok {
		above = s.Context
	}
	if above.IsZero() {
		made, err := execution.NewContext(execution.Origin{
			TraceID: s.TraceID, RootTraceID: s.RootTraceID, UserID: s.User,
			ConversationID: s.SessionID, SessionID: s.SessionID,
		})
		if err != nil { // an agent that is run by hand may have no trace
			return ctx
		}
		above = made
	}
	return execution.WithContext(ctx, above.WithUserIntent(intent(s)))
}

// prompted is what the user said last.
func prompted(s execution.Step) string {
	for _, m := range slices.Backward(s.History) {
		if m.Role == "user" && m.Author == "" {
			return m.Text
		}
	}
	return ""
}

// intent is what the agent is asked to do: its task, or what the user said last.
func intent(s execution.Step) string {
	if s.Task != s.Goal {
		return s.Task
	}
	return prompted(s)
}
