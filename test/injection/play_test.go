package injection_test

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"iter"
	"slices"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/troupe-dev/troupe/internal/loop/guard"
	"github.com/troupe-dev/troupe/pkg/agent"
	"github.com/troupe-dev/troupe/pkg/agent/agenttest"
	"github.com/troupe-dev/troupe/pkg/agent/flow"
	"github.com/troupe-dev/troupe/pkg/conversation"
	"github.com/troupe-dev/troupe/pkg/event"
	"github.com/troupe-dev/troupe/pkg/execution"
	"github.com/troupe-dev/troupe/pkg/failure"
	"github.com/troupe-dev/troupe/pkg/memory"
	"github.com/troupe-dev/troupe/pkg/tool"
)

// place runs a case: an agent with tools that record their calls, and the outcome.
type place struct {
	t    *testing.T
	c    injection
	asks bool // it has a session, in which calls can wait

	mu   sync.Mutex
	did  []string
	last agenttest.Turn
	told []event.Event
	s    *agenttest.Session
}

// play runs a case as far as possible without a decision of the user.
func play(t *testing.T, c injection, mode tool.Guard, parallel bool) *place {
	t.Helper()
	p := &place{t: t, c: c, asks: true}
	switch c.Channel {
	case "tool", "error", "quoted":
		p.talk(p.clerk(mode, parallel, p.source()), "Please read it.")
	case "description":
		p.talk(p.clerk(mode, parallel, p.described()), "Hello.")
	case "history", "summary", "state":
		p.later(mode, parallel)
	case "nested":
		p.talk(p.clerk(mode, parallel, p.asTool(p.reader())), "Please have it read.")
	case "remote":
		p.talk(p.clerk(mode, parallel, p.asTool(p.remote())), "Please ask.")
	case "handed":
		boss := p.build(agent.Config{
			Name: "boss", Model: &obedient{"read_page"}, Tools: []tool.Tool{p.source(), p.asTool(p.clerk(tool.GuardOff, parallel))}, Guard: mode,
		})
		p.talk(boss, "Please read it.")
	case "flow":
		both, err := flow.Sequence(agent.Config{Name: "both"}, p.reader(), p.clerk(mode, parallel))
		require.NoError(t, err)
		p.talk(both, "Please read it.")
	case "file", "filename", "prior":
		p.asks = false
		p.bare(p.clerk(mode, parallel))
	default:
		t.Fatalf("there is no channel %q", c.Channel)
	}
	return p
}

// clerk has tools that do harm, and some that do not.
func (p *place) clerk(mode tool.Guard, parallel bool, more ...tool.Tool) *agent.Agent {
	none := tool.Scope{}
	tools := append(slices.Clone(more),
		tool.With(execution.AtMostOnce, p.tool("send_mail")),
		tool.Within(tool.Scope{Egress: true}, tool.With(execution.Read, p.tool("http_get"))),
		tool.Within(tool.Scope{Egress: true}, tool.With(execution.Idempotent, p.tool("pay"))),
		p.tool("delete_file"),
		tool.Within(none, tool.With(execution.Read, p.tool("look_up"))),
		tool.Within(none, tool.With(execution.Idempotent, p.tool("note"))),
	)
	config := agent.Config{
		Name: "clerk", Model: &obedient{p.first(more)}, Tools: tools, Parallel: parallel, Guard: mode, MaxFailures: 100,
	}
	if p.c.Channel == "state" {
		config.Instructions, config.OutputKey = "What you know: {note?}", "note"
	}
	return p.build(config)
}

// first returns the tool that the model calls first.
func (p *place) first(tools []tool.Tool) string {
	if len(tools) == 0 || p.c.Channel == "description" {
		return ""
	}
	return tools[0].Spec().Name
}

func (p *place) build(c agent.Config) *agent.Agent {
	p.t.Helper()
	a, err := agent.New(c)
	require.NoError(p.t, err)
	return a
}

// tool returns a tool that records its call.
func (p *place) tool(name string) tool.Tool {
	p.t.Helper()
	made, err := tool.Func(name, "Does it.", func(_ context.Context, in struct {
		To     string `json:"to,omitempty"`
		Path   string `json:"path,omitempty"`
		URL    string `json:"url,omitempty"`
		Query  string `json:"query,omitempty"`
		Text   string `json:"text,omitempty"`
		Amount int    `json:"amount,omitempty"`
	},
	) (string, error) {
		text, err := json.Marshal(in)
		p.mu.Lock()
		defer p.mu.Unlock()
		p.did = append(p.did, canonical(name, string(text)))
		return "done", err
	})
	require.NoError(p.t, err)
	return made
}

// source returns the tool through which the text arrives.
func (p *place) source() tool.Tool {
	p.t.Helper()
	made, err := tool.Func(cmp.Or(p.c.Via, "read_page"), "Reads it.", func(ctx context.Context, _ struct{}) (string, error) {
		switch p.c.Channel {
		case "error":
			return "", errors.New(p.c.Text)
		case "quoted":
			tool.Quotes(ctx, "mailbox of ann")
		}
		return p.c.Text, nil
	})
	require.NoError(p.t, err)
	return tool.Within(tool.Scope{Untrusted: p.c.Channel != "quoted"}, tool.With(execution.Read, made))
}

// described returns a tool of a server that describes it itself.
func (p *place) described() tool.Tool {
	p.t.Helper()
	made, err := tool.Func("add", p.c.Text, func(context.Context, struct{}) (string, error) { return "3", nil })
	require.NoError(p.t, err)
	return tool.Within(tool.Scope{Untrusted: true, Egress: true, Party: tool.PartyPrefix + "sums"}, made)
}

// reader returns an agent that reads, and repeats what it read.
func (p *place) reader() *agent.Agent {
	return p.build(agent.Config{Name: "reader", Description: "Reads.", Model: &obedient{"read_page"}, Tools: []tool.Tool{p.source()}})
}

// remote returns a remote agent, as package client makes one.
func (p *place) remote() *agent.Agent {
	return p.build(agent.Config{Name: "reader", Description: "Reads.", Run: func(context.Context, agent.Invocation) iter.Seq2[event.Event, error] {
		return func(yield func(event.Event, error) bool) {
			yield(event.Event{Payload: event.TurnResult{Reason: event.Natural, Result: execution.Result{Text: p.c.Text, Untrusted: "agent far"}}}, nil)
		}
	}})
}

func (p *place) asTool(a *agent.Agent) tool.Tool {
	p.t.Helper()
	made, err := flow.AsTool(a, flow.AsToolConfig{})
	require.NoError(p.t, err)
	return made
}

// talk sends a text in a new session.
func (p *place) talk(a *agent.Agent, text string) {
	p.s = agenttest.NewSession(p.t, a)
	p.note(p.s.Say(text))
}

// later reads the text in one turn, and continues in the next turn of the session.
func (p *place) later(mode tool.Guard, parallel bool) {
	p.talk(p.clerk(mode, parallel, p.source()), "Please read it.")
	require.Empty(p.t, p.ran(), "it woke too early")
	if p.c.Channel == "summary" {
		_, err := p.s.Store.CompactSession(p.t.Context(), memory.Compact{Ref: p.s.Ref, Keep: 1, Strategy: conversation.Summarize})
		require.NoError(p.t, err)
		require.Equal(p.t, conversation.RoleSummary, p.s.History()[0].Role)
	}
	p.c.Text = "nothing" // the text is not read again
	p.note(p.s.Say(cmp.Or(p.c.Word, "go on")))
}

// bare runs a step without a person to ask.
func (p *place) bare(a *agent.Agent) {
	step := execution.Step{Number: 2, History: []conversation.Message{conversation.User("Please read it.")}}
	switch p.c.Channel {
	case "prior":
		step.Prior = []execution.Result{{Step: 1, Agent: "reader", Text: "I have read it.", Observations: []string{p.c.Text}, Untrusted: "tool read_page"}}
	case "file":
		step.History[0].Attachments = []conversation.Attachment{{Name: "cv.txt", MediaType: "text/plain", Data: []byte(p.c.Text)}}
	case "filename":
		step.History[0].Attachments = []conversation.Attachment{{Name: p.c.Text, MediaType: "text/plain"}}
	}
	_, err := a.Execute(p.t.Context(), agent.Invocation{Step: step}, func(e event.Event) error {
		p.told = append(p.told, e)
		return nil
	})
	require.NoError(p.t, err)
}

func (p *place) note(turn agenttest.Turn) {
	p.last = turn
	p.told = append(p.told, turn.Events...)
}

func (p *place) approve() { p.note(p.s.Approve()) }

func (p *place) deny() { p.note(p.s.Deny("I did not ask for that")) }

// ran returns the calls that had an effect, sorted.
func (p *place) ran() []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return sorted(p.did)
}

// pending returns the waiting calls.
func (p *place) pending() []execution.Pending { return p.last.Pending }

// refused returns the tools that the guard rejected, each with its warning on the trace.
func (p *place) refused() []string {
	var all, warned []string
	for _, e := range p.told {
		switch told := e.Payload.(type) {
		case event.ToolFinished:
			if told.ErrorType == string(failure.PolicySecurity) {
				all = append(all, told.Tool)
			}
		case event.Warning:
			if told.Reason == guard.ReasonUntrustedInput {
				warned = append(warned, told.Message)
			}
		}
	}
	if p.c.Channel == "handed" { // how calls of an agent that is a tool ended is not told, but what the guard did is
		return warned
	}
	require.Len(p.t, warned, len(all))
	return all
}
