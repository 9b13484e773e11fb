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

// caseRun is one run of a case: an agent whose tools record their calls, and the outcome.
type caseRun struct {
	t          *testing.T
	c          injectionCase
	hasSession bool // calls can wait for the user only in a session

	mu       sync.Mutex
	calls    []string
	lastTurn agenttest.Turn
	events   []event.Event
	session  *agenttest.Session
}

// runCase runs a case until it ends or needs a decision by the user.
func runCase(t *testing.T, c injectionCase, mode tool.Guard, parallel bool) *caseRun {
	t.Helper()
	p := &caseRun{t: t, c: c, hasSession: true}
	switch c.Channel {
	case "tool", "error", "quoted":
		p.startSession(p.actingAgent(mode, parallel, p.textTool()), "Please read it.")
	case "description":
		p.startSession(p.actingAgent(mode, parallel, p.describedTool()), "Hello.")
	case "history", "summary", "state":
		p.runTwoTurns(mode, parallel)
	case "nested":
		p.startSession(p.actingAgent(mode, parallel, p.agentAsTool(p.readerAgent())), "Please have it read.")
	case "remote":
		p.startSession(p.actingAgent(mode, parallel, p.agentAsTool(p.remoteAgent())), "Please ask.")
	case "handed":
		boss := p.newAgent(agent.Config{
			Name: "boss", Model: &obedientModel{"read_page"}, Tools: []tool.Tool{p.textTool(), p.agentAsTool(p.actingAgent(tool.GuardOff,
				parallel))}, Guard: mode,
		})
		p.startSession(boss, "Please read it.")
	case "flow":
		both, err := flow.Sequence(agent.Config{Name: "both"}, p.readerAgent(), p.actingAgent(mode, parallel))
		require.NoError(t, err)
		p.startSession(both, "Please read it.")
	case "file", "filename", "prior":
		p.hasSession = false
		p.runStep(p.actingAgent(mode, parallel))
	default:
		t.Fatalf("there is no channel %q", c.Channel)
	}
	return p
}

// actingAgent returns an agent with harmful and harmless tools, which record their calls.
func (p *caseRun) actingAgent(mode tool.Guard, parallel bool, more ...tool.Tool) *agent.Agent {
	none := tool.Scope{}
	tools := append(slices.Clone(more),
		tool.With(execution.AtMostOnce, p.recordingTool("send_mail")),
		tool.Within(tool.Scope{Egress: true}, tool.With(execution.Read, p.recordingTool("http_get"))),
		tool.Within(tool.Scope{Egress: true}, tool.With(execution.Idempotent, p.recordingTool("pay"))),
		p.recordingTool("delete_file"),
		tool.Within(none, tool.With(execution.Read, p.recordingTool("look_up"))),
		tool.Within(none, tool.With(execution.Idempotent, p.recordingTool("note"))),
	)
	config := agent.Config{
		Name: "clerk", Model: &obedientModel{p.firstTool(more)}, Tools: tools, Parallel: parallel, Guard: mode, MaxFailures: 100,
	}
	if p.c.Channel == "state" {
		config.Instructions, config.OutputKey = "What you know: {note?}", "note"
	}
	return p.newAgent(config)
}

// firstTool returns the tool that the model calls first.
func (p *caseRun) firstTool(tools []tool.Tool) string {
	if len(tools) == 0 || p.c.Channel == "description" {
		return ""
	}
	return tools[0].Spec().Name
}

func (p *caseRun) newAgent(c agent.Config) *agent.Agent {
	p.t.Helper()
	a, err := agent.New(c)
	require.NoError(p.t, err)
	return a
}

// recordingTool returns a tool that records its calls.
func (p *caseRun) recordingTool(name string) tool.Tool {
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
		p.calls = append(p.calls, formatCall(name, string(text)))
		return "done", err
	})
	require.NoError(p.t, err)
	return made
}

// textTool returns the tool whose result contains the injected text.
func (p *caseRun) textTool() tool.Tool {
	p.t.Helper()
	made, err := tool.Func(cmp.Or(p.c.Tool, "read_page"), "Reads it.", func(ctx context.Context, _ struct{}) (string, error) {
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

// describedTool returns a tool with a description from its own server.
func (p *caseRun) describedTool() tool.Tool {
	p.t.Helper()
	made, err := tool.Func("add", p.c.Text, func(context.Context, struct{}) (string, error) { return "3", nil })
	require.NoError(p.t, err)
	return tool.Within(tool.Scope{Untrusted: true, Egress: true, Party: tool.PartyPrefix + "sums"}, made)
}

// readerAgent returns an agent that reads the injected text and repeats it.
func (p *caseRun) readerAgent() *agent.Agent {
	return p.newAgent(agent.Config{Name: "reader", Description: "Reads.", Model: &obedientModel{"read_page"}, Tools: []tool.Tool{p.textTool()}})
}

// remoteAgent returns a remote agent as package client creates it.
func (p *caseRun) remoteAgent() *agent.Agent {
	return p.newAgent(agent.Config{Name: "reader", Description: "Reads.", Run: func(context.Context, agent.Invocation) iter.Seq2[event.Event, error] {
		return func(yield func(event.Event, error) bool) {
			yield(event.Event{Payload: event.TurnResult{Reason: event.Natural, Result: execution.Result{Text: p.c.Text, Untrusted: "agent far"}}}, nil)
		}
	}})
}

func (p *caseRun) agentAsTool(a *agent.Agent) tool.Tool {
	p.t.Helper()
	made, err := flow.AsTool(a, flow.AsToolConfig{})
	require.NoError(p.t, err)
	return made
}

// startSession starts a session with a text.
func (p *caseRun) startSession(a *agent.Agent, text string) {
	p.session = agenttest.NewSession(p.t, a)
	p.addTurn(p.session.Say(text))
}

// runTwoTurns lets the agent read the text in one turn and then runs the next turn of the session.
func (p *caseRun) runTwoTurns(mode tool.Guard, parallel bool) {
	p.startSession(p.actingAgent(mode, parallel, p.textTool()), "Please read it.")
	require.Empty(p.t, p.executedCalls(), "it woke too early")
	if p.c.Channel == "summary" {
		_, err := p.session.Store.CompactSession(p.t.Context(), memory.Compact{Ref: p.session.Ref, Keep: 1, Strategy: conversation.Summarize})
		require.NoError(p.t, err)
		require.Equal(p.t, conversation.RoleSummary, p.session.History()[0].Role)
	}
	p.c.Text = "nothing" // the text is not read again
	p.addTurn(p.session.Say(cmp.Or(p.c.Trigger, "go on")))
}

// runStep runs one step outside a session, so no user can approve a call.
func (p *caseRun) runStep(a *agent.Agent) {
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
		p.events = append(p.events, e)
		return nil
	})
	require.NoError(p.t, err)
}

func (p *caseRun) addTurn(turn agenttest.Turn) {
	p.lastTurn = turn
	p.events = append(p.events, turn.Events...)
}

func (p *caseRun) approvePendingCalls() { p.addTurn(p.session.Approve()) }

func (p *caseRun) denyPendingCalls() { p.addTurn(p.session.Deny("I did not ask for that")) }

// executedCalls returns the calls that ran, sorted.
func (p *caseRun) executedCalls() []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return sortCalls(p.calls)
}

// pendingCalls returns the calls that wait for a decision by the user.
func (p *caseRun) pendingCalls() []execution.Pending { return p.lastTurn.Pending }

// blockedTools returns the tools whose calls the guard rejected, and requires a warning for each. For an agent
// that serves as a tool it returns the warnings, because the results of its calls are not visible.
func (p *caseRun) blockedTools() []string {
	var all, warned []string
	for _, e := range p.events {
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
	if p.c.Channel == "handed" { // an agent that serves as a tool reports the guard's warnings, but not its tool results
		return warned
	}
	require.Len(p.t, warned, len(all))
	return all
}
