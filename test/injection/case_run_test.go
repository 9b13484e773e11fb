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
func (r *caseRun) actingAgent(mode tool.Guard, parallel bool, more ...tool.Tool) *agent.Agent {
	none := tool.Scope{}
	tools := append(slices.Clone(more),
		tool.WithEffect(execution.AtMostOnce, r.recordingTool("send_mail")),
		tool.WithScope(tool.Scope{Egress: true}, tool.WithEffect(execution.Read, r.recordingTool("http_get"))),
		tool.WithScope(tool.Scope{Egress: true}, tool.WithEffect(execution.Idempotent, r.recordingTool("pay"))),
		r.recordingTool("delete_file"),
		tool.WithScope(none, tool.WithEffect(execution.Read, r.recordingTool("look_up"))),
		tool.WithScope(none, tool.WithEffect(execution.Idempotent, r.recordingTool("note"))),
	)
	config := agent.Config{
		Name: "clerk", Model: &obedientModel{r.firstTool(more)}, Tools: tools, Parallel: parallel, Guard: mode, MaxFailures: 100,
	}
	if r.c.Channel == "state" {
		config.Instructions, config.OutputKey = "What you know: {note?}", "note"
	}
	return r.newAgent(config)
}

// firstTool returns the name of the tool that the model calls first (empty if it calls none).
func (r *caseRun) firstTool(tools []tool.Tool) string {
	if len(tools) == 0 || r.c.Channel == "description" {
		return ""
	}
	return tools[0].Spec().Name
}

func (r *caseRun) newAgent(c agent.Config) *agent.Agent {
	r.t.Helper()
	a, err := agent.New(c)
	require.NoError(r.t, err)
	return a
}

// recordingTool returns a tool that records its calls.
func (r *caseRun) recordingTool(name string) tool.Tool {
	r.t.Helper()
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
		r.mu.Lock()
		defer r.mu.Unlock()
		r.calls = append(r.calls, formatCall(name, string(text)))
		return "done", err
	})
	require.NoError(r.t, err)
	return made
}

// textTool returns the tool whose result contains the injected text.
func (r *caseRun) textTool() tool.Tool {
	r.t.Helper()
	made, err := tool.Func(cmp.Or(r.c.Tool, "read_page"), "Reads it.", func(ctx context.Context, _ struct{}) (string, error) {
		switch r.c.Channel {
		case "error":
			return "", errors.New(r.c.Text)
		case "quoted":
			tool.Quotes(ctx, "mailbox of ann")
		}
		return r.c.Text, nil
	})
	require.NoError(r.t, err)
	return tool.WithScope(tool.Scope{Untrusted: r.c.Channel != "quoted"}, tool.WithEffect(execution.Read, made))
}

// describedTool returns a tool with a description from its own server.
func (r *caseRun) describedTool() tool.Tool {
	r.t.Helper()
	made, err := tool.Func("add", r.c.Text, func(context.Context, struct{}) (string, error) { return "3", nil })
	require.NoError(r.t, err)
	return tool.WithScope(tool.Scope{Untrusted: true, Egress: true, Party: tool.PartyPrefix + "sums"}, made)
}

// readerAgent returns an agent that reads the injected text and repeats it.
func (r *caseRun) readerAgent() *agent.Agent {
	return r.newAgent(agent.Config{Name: "reader", Description: "Reads.", Model: &obedientModel{"read_page"}, Tools: []tool.Tool{r.textTool()}})
}

// remoteAgent returns a remote agent as package client creates it.
func (r *caseRun) remoteAgent() *agent.Agent {
	return r.newAgent(agent.Config{Name: "reader", Description: "Reads.", Run: func(context.Context, agent.Invocation) iter.Seq2[event.Event, error] {
		return func(yield func(event.Event, error) bool) {
			yield(event.Event{Payload: event.TurnResult{Reason: event.Natural, Result: execution.Result{Text: r.c.Text, Untrusted: "agent far"}}}, nil)
		}
	}})
}

func (r *caseRun) agentAsTool(a *agent.Agent) tool.Tool {
	r.t.Helper()
	made, err := flow.AsTool(a, flow.AsToolConfig{})
	require.NoError(r.t, err)
	return made
}

// startSession starts a session with a text.
func (r *caseRun) startSession(a *agent.Agent, text string) {
	r.session = agenttest.NewSession(r.t, a)
	r.addTurn(r.session.Say(text))
}

// runTwoTurns lets the agent read the text in one turn and then runs the next turn of the session.
func (r *caseRun) runTwoTurns(mode tool.Guard, parallel bool) {
	r.startSession(r.actingAgent(mode, parallel, r.textTool()), "Please read it.")
	require.Empty(r.t, r.executedCalls(), "it woke too early")
	if r.c.Channel == "summary" {
		_, err := r.session.Store.CompactSession(r.t.Context(), memory.Compact{Ref: r.session.Ref, Keep: 1, Strategy: conversation.Summarize})
		require.NoError(r.t, err)
		require.Equal(r.t, conversation.RoleSummary, r.session.History()[0].Role)
	}
	r.c.Text = "nothing" // the text is not read again
	r.addTurn(r.session.Say(cmp.Or(r.c.Trigger, "go on")))
}

// runStep runs one step outside a session, so no user can approve a call.
func (r *caseRun) runStep(a *agent.Agent) {
	step := execution.Step{Number: 2, History: []conversation.Message{conversation.User("Please read it.")}}
	switch r.c.Channel {
	case "prior":
		step.Prior = []execution.Result{{Step: 1, Agent: "reader", Text: "I have read it.", Observations: []string{r.c.Text}, Untrusted: "tool read_page"}}
	case "file":
		step.History[0].Attachments = []conversation.Attachment{{Name: "cv.txt", MediaType: "text/plain", Data: []byte(r.c.Text)}}
	case "filename":
		step.History[0].Attachments = []conversation.Attachment{{Name: r.c.Text, MediaType: "text/plain"}}
	}
	_, err := a.Execute(r.t.Context(), agent.Invocation{Step: step}, func(e event.Event) error {
		r.events = append(r.events, e)
		return nil
	})
	require.NoError(r.t, err)
}

func (r *caseRun) addTurn(turn agenttest.Turn) {
	r.lastTurn = turn
	r.events = append(r.events, turn.Events...)
}

func (r *caseRun) approvePendingCalls() { r.addTurn(r.session.Approve()) }

func (r *caseRun) denyPendingCalls() { r.addTurn(r.session.Deny("I did not ask for that")) }

// executedCalls returns the calls that ran, sorted.
func (r *caseRun) executedCalls() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return sortedCalls(r.calls)
}

// pendingCalls returns the calls that wait for a decision by the user.
func (r *caseRun) pendingCalls() []execution.Pending { return r.lastTurn.Pending }

// blockedTools returns the tools whose calls the guard rejected, and requires a warning for each. For an agent
// that serves as a tool it returns the warnings, because the results of its calls are not visible.
func (r *caseRun) blockedTools() []string {
	var all, warned []string
	for _, e := range r.events {
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
	if r.c.Channel == "handed" { // an agent that serves as a tool reports the guard's warnings, but not its tool results
		return warned
	}
	require.Len(r.t, warned, len(all))
	return all
}
