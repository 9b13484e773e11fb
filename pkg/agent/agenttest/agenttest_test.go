package agenttest_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/troupe-dev/troupe/internal/loop"
	"github.com/troupe-dev/troupe/internal/loop/prepare"
	"github.com/troupe-dev/troupe/pkg/agent"
	"github.com/troupe-dev/troupe/pkg/agent/agenttest"
	"github.com/troupe-dev/troupe/pkg/conversation"
	"github.com/troupe-dev/troupe/pkg/event"
	"github.com/troupe-dev/troupe/pkg/execution"
	"github.com/troupe-dev/troupe/pkg/failure"
	"github.com/troupe-dev/troupe/pkg/hook"
	"github.com/troupe-dev/troupe/pkg/llm"
	"github.com/troupe-dev/troupe/pkg/llm/scripted"
	"github.com/troupe-dev/troupe/pkg/plugin/approval"
	"github.com/troupe-dev/troupe/pkg/tool"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var _ agenttest.T = (*testing.T)(nil)

// noteTool returns a tool that stores a note three times: in the session's state, in the user's state and as an
// artifact.
func noteTool(t *testing.T) tool.Tool {
	t.Helper()
	type in struct {
		Text string `json:"text"`
	}
	note, err := tool.Func("note", "Keeps a note.", func(ctx context.Context, in in) (string, error) {
		running := hook.InTool(ctx)
		version, err := running.Memory().SaveArtifact(ctx, "notes.txt", "text/plain", []byte(in.Text))
		return fmt.Sprintf("version %d", version), errors.Join(err, running.Memory().Set("last", in.Text), running.Memory().Set("user:notes", version))
	})
	require.NoError(t, err)
	return note
}

func newNoteAgent(t *testing.T, replies ...scripted.Reply) (*agent.Agent, *scripted.Model) {
	t.Helper()
	model := scripted.New(replies...)
	a, err := agent.New(agent.Config{Name: "keeper", Model: model, Tools: []tool.Tool{noteTool(t)}, MaxIterations: 2})
	require.NoError(t, err)
	return a, model
}

func noteReply(text string) scripted.Reply {
	return scripted.Call(conversation.ToolCall{Name: "note", Arguments: fmt.Sprintf(`{"text": %q}`, text)})
}

func TestRun_ReturnsTheOutcomeOfATurn(t *testing.T) {
	a, _ := newNoteAgent(t, noteReply("milk"), scripted.Reply{Deltas: []string{"Kept", "."}, Usage: execution.Usage{InputTokens: 7}})
	turn := agenttest.Run(t, a, "Keep milk.")
	require.NoError(t, turn.Err)
	require.Equal(t, "Kept.", turn.Text)
	require.Equal(t, []string{"note"}, turn.Tools)
	require.Equal(t, map[string]any{"last": "milk", "user:notes": 1.0}, turn.State)
	require.Empty(t, turn.Warnings)
	require.Equal(t, event.Natural, turn.Result.Reason)
	require.EqualValues(t, 7, turn.Result.Usage.InputTokens)
	require.Equal(t, []string{
		"user_input", "llm_call", "tool_call", "artifact_update", "tool_execution", "message", "llm_call", "assistant", "turn_result",
	}, turn.Kinds())
}

func TestSession_KeepsItsHistoryStateAndArtifacts(t *testing.T) {
	a, model := newNoteAgent(t, noteReply("milk"), scripted.Say("Kept."), noteReply("eggs"), scripted.Say("Kept too."), scripted.Say("Going on."),
		scripted.Say("Hi."))
	s := agenttest.NewSession(t, a)
	s.Set("last", "bread")
	s.Set("app:shop", map[string]int{"open": 9})
	s.Say("Keep milk.")
	turn := s.Say("Keep eggs.")
	require.Equal(t, map[string]any{"last": "eggs", "user:notes": 2.0, "app:shop": map[string]any{"open": 9.0}}, turn.State)
	require.Equal(t, 2, turn.Result.Turn)
	require.Equal(t, "eggs", s.Artifact("notes.txt"))
	var said []string
	for _, m := range s.History() {
		said = append(said, m.Text)
	}
	require.Equal(t, []string{"Keep milk.", "Kept.", "Keep eggs.", "Kept too."}, said)
	require.Len(t, model.Requests()[2].Messages, 3, "the second turn sees the first")

	require.Equal(t, "Going on.", s.Say("").Text)
	require.Len(t, model.Requests()[4].Messages, 4, "the user said nothing")

	other := s.Another()
	turn = other.Say("Hello.")
	require.Equal(t, map[string]any{"user:notes": 2.0, "app:shop": map[string]any{"open": 9.0}}, turn.State)
	require.Len(t, other.History(), 2)
}

func TestSession_ContinuesAfterAFailedTurn(t *testing.T) {
	a, _ := newNoteAgent(t, noteReply("milk"), scripted.Fail(failure.New(failure.ResourceAPI, "test", "down")), scripted.Say("Back."), noteReply("a"),
		noteReply("b"))
	s := agenttest.NewSession(t, a)
	turn := s.Try("Keep milk.")
	require.True(t, failure.Is(turn.Err, failure.ResourceAPI), "%v", turn.Err)
	require.Empty(t, turn.Text)
	require.Empty(t, turn.State, "a turn that failed changes no state")
	require.Equal(t, event.Failed, turn.Result.Reason)
	require.Equal(t, "Back.", s.Say("Again?").Text)

	turn = s.Try("Keep a and b.", func(inv *agent.Invocation) { inv.MaxIterations = 1 })
	require.NoError(t, turn.Err)
	require.Equal(t, loop.ReasonMaxIterations, turn.Warnings[0].Reason)
}

// Req: LP-16, LP-32
func TestSession_ContinuesWithAnswers(t *testing.T) {
	screen, err := tool.Client("screen", "Reads the screen.", json.RawMessage(`{"type": "object"}`))
	require.NoError(t, err)
	guard, err := approval.New(approval.Config{})
	require.NoError(t, err)
	model := scripted.New(
		scripted.Call(conversation.ToolCall{Name: "screen"}), scripted.Say("Seen."),
		noteReply("milk"), scripted.Say("Not kept."),
		noteReply("eggs"), scripted.Say("Later."),
	)
	a, err := agent.New(agent.Config{Name: "keeper", Model: model, Tools: []tool.Tool{noteTool(t), screen}, Plugins: []hook.Plugin{guard}})
	require.NoError(t, err)
	s := agenttest.NewSession(t, a)

	turn := s.Say("What is on it?")
	require.Equal(t, "screen waits for a result of the client.", turn.Text)
	turn = s.Answer(execution.Answer{ID: turn.Pending[0].ID, Verdict: execution.Succeed, Text: "a cat"})
	require.Equal(t, "Seen.", turn.Text)
	require.Equal(t, "a cat", model.Requests()[1].Messages[2].Text)
	require.Equal(t, 2, turn.Result.Turn)

	turn = s.Say("Keep milk.")
	turn = s.Answer(execution.Answer{ID: turn.Pending[0].ID, Verdict: execution.Approve, Late: true})
	require.Equal(t, "Not kept.", turn.Text)
	require.Equal(t, prepare.ReasonApprovalTimeout, turn.Warnings[0].Reason)
	require.Empty(t, turn.State)

	require.Len(t, s.Say("Keep eggs.").Pending, 1)
	require.Equal(t, "Later.", s.Say("No, later.").Text, "the call was left")
	require.Len(t, model.Requests(), 6)
}

func TestSession_FailsTheTestIfNoCallWaitsForTheAnswer(t *testing.T) {
	a, _ := newNoteAgent(t, scripted.Say("Hi."))
	require.Contains(t, failureOf(t, func(f agenttest.T) {
		s := agenttest.NewSession(f, a)
		s.Say("Hello.")
		s.Approve()
	}), "answers: there is none; waiting: none")
}

// fakeT is a T that records the failure of a test.
type fakeT struct {
	*testing.T
	failureText string
}

var errFailed = errors.New("the test failed")

func (f *fakeT) Fatalf(format string, args ...any) {
	f.failureText = fmt.Sprintf(format, args...)
	panic(errFailed) // Fatalf of a test does not return either
}

// failureOf runs a test that must fail and returns its failure text.
func failureOf(t *testing.T, test func(agenttest.T)) string {
	t.Helper()
	f := &fakeT{T: t}
	func() {
		defer func() { require.Equal(t, any(errFailed), recover()) }()
		test(f)
	}()
	return f.failureText
}

func TestRun_FailsTheTestIfTheTurnFails(t *testing.T) {
	a, _ := newNoteAgent(t, scripted.Fail(failure.New(failure.ResourceAPI, "test", "down")), scripted.Say("Hi."))
	require.Equal(t, "agent keeper, turn 1: test: resource_api: down", failureOf(t, func(f agenttest.T) { agenttest.Run(f, a, "hi") }))
	require.True(t, strings.HasPrefix(failureOf(t, func(f agenttest.T) { agenttest.NewSession(f, a).Artifact("none") }), "load artifact none: "))
	require.True(t, strings.HasPrefix(failureOf(t, func(f agenttest.T) { agenttest.NewSession(f, a).Set("trace_id", "x") }), "set trace_id: "))
	require.True(t, strings.HasPrefix(failureOf(t, func(f agenttest.T) { agenttest.NewSession(f, a).History() }), "load history: "))
}

// loggedResource is a tool that records when it is started and closed.
type loggedResource struct {
	log      *[]string
	startErr error
}

func (r *loggedResource) Spec() llm.ToolSpec { return llm.ToolSpec{Name: "resource"} }

func (r *loggedResource) Call(context.Context, json.RawMessage) (tool.Result, error) {
	return tool.Result{}, nil
}

func (r *loggedResource) Start(context.Context) error {
	*r.log = append(*r.log, "start")
	return r.startErr
}

func (r *loggedResource) Close() error {
	*r.log = append(*r.log, "close")
	return nil
}

func TestSession_StartsAndClosesItsAgent(t *testing.T) {
	var log []string
	files := &loggedResource{log: &log}
	a, err := agent.New(agent.Config{Name: "a", Model: scripted.New(scripted.Say("hi")), Tools: []tool.Tool{files}})
	require.NoError(t, err)
	t.Run("a test", func(t *testing.T) {
		agenttest.Run(t, a, "hi")
		require.Equal(t, []string{"start"}, log)
	})
	require.Equal(t, []string{"start", "close"}, log)

	files.startErr = errors.New("no such folder")
	require.Contains(t, failureOf(t, func(f agenttest.T) { agenttest.NewSession(f, a) }), "start agent a: ")
}
