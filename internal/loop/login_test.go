package loop_test

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	gocmp "github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/stretchr/testify/require"

	"github.com/troupe-dev/troupe/internal/broker"
	"github.com/troupe-dev/troupe/internal/loop"
	"github.com/troupe-dev/troupe/internal/loop/prepare"
	"github.com/troupe-dev/troupe/internal/pendingcall"
	"github.com/troupe-dev/troupe/pkg/event"
	"github.com/troupe-dev/troupe/pkg/execution"
	"github.com/troupe-dev/troupe/pkg/hook"
	"github.com/troupe-dev/troupe/pkg/llm/scripted"
	"github.com/troupe-dev/troupe/pkg/secret"
	"github.com/troupe-dev/troupe/pkg/tool"
)

var mailbox = execution.Login{Name: "mailbox", Prompt: "The password of your mailbox.", URL: "https://mail.example.org/passwords"}

// loginScenario is a waitScenario whose tools fetch and post both need the password of the mailbox.
type loginScenario struct {
	*waitScenario
	broker           *broker.Broker
	turnCredentials  execution.Auth // credentials sent with every turn
	rejectedPassword string         // password that the tools reject
}

func newLoginScenario(t *testing.T, script ...scripted.Reply) *loginScenario {
	t.Helper()
	h := &loginScenario{
		waitScenario: &waitScenario{t: t, model: scripted.New(script...), journal: &fakeJournal{durableOnSync: true}},
		broker:       broker.New("house-1"),
	}
	var all []tool.Tool
	for name, effect := range map[string]execution.Effect{"fetch": execution.Read, "post": execution.AtMostOnce} {
		one, err := tool.Func(name, "A tool of the test.", func(ctx context.Context, in wordArgs) (string, error) {
			password, _ := execution.Credential(ctx, "mailbox")
			h.mu.Lock()
			defer h.mu.Unlock()
			h.toolRuns = append(h.toolRuns, name+" "+in.Word+" "+password.Reveal())
			if password.Reveal() == h.rejectedPassword {
				return "", tool.LoginRejected("mailbox", "it has expired")
			}
			return "did " + in.Word, nil
		})
		require.NoError(t, err)
		all = append(all, tool.WithEffect(effect, tool.WithLogin(mailbox, one)))
	}
	free, err := tool.Func("free", "Needs nothing.", func(ctx context.Context, _ wordArgs) (string, error) {
		password, found := execution.Credential(ctx, "mailbox")
		return fmt.Sprint(found, password.Reveal()), nil
	})
	require.NoError(t, err)
	h.tools, err = tool.NewSet(append(all, free)...)
	require.NoError(t, err)
	return h
}

// runTurn runs the next turn of the step with the current broker.
func (l *loginScenario) runTurn(answers ...execution.Answer) runOutcome {
	l.t.Helper()
	ctx, end := context.WithCancel(l.t.Context())
	defer end()
	in := newInput("go", l.handlers...)
	in.Journal, in.IdempotencyKey, in.Answers = l.journal, idempotencyKey, answers
	in.CallID = func(number int) string { return pendingcall.ID(2, 7, number) }
	if l.broker != nil {
		in.Broker = l.broker.ForSession("s1")
	}
	var got eventRecorder
	out, err := runToEnd(execution.WithAuth(ctx, l.turnCredentials), loop.Loop{Model: l.model, Tools: l.tools, Parallel: l.parallel}, in, got.emit)
	require.NoError(l.t, err)
	l.events, l.journal.pending = got.events, nil
	return out
}

// sealedAnswer returns an answer that contains a sealed credential, as the continuing turn receives it.
func sealedAnswer(t *testing.T, p execution.Pending, password string) execution.Answer {
	t.Helper()
	require.Equal(t, execution.NeedAuth, p.Needs)
	sealed, err := broker.Seal(p.Auth.ID, "s1", p.Auth.Key, secret.New(password))
	require.NoError(t, err)
	settled, err := pendingcall.CheckAnswers([]execution.Pending{p}, []execution.Answer{{ID: p.ID, Verdict: execution.Approve, Sealed: string(sealed)}},
		time.Now())
	require.NoError(t, err)
	return settled[0]
}

// A call whose tool needs a credential waits before the tool runs. With the credential the tool runs once, and no
// other tool can use the credential.
// Req: LP-37
func TestLogin_CallWaitsForACredential(t *testing.T) {
	h := newLoginScenario(t, toolCallsReply("free", "post", "free"), toolCallsReply("post", "fetch"), scripted.Say("done"))
	out := h.runTurn()
	want := execution.Pending{
		ID: "2-7-3", CallID: "2", Tool: "post", Arguments: `{"word": "2"}`, Needs: execution.NeedAuth, Risk: execution.AtMostOnce,
		Reason: "The agent test needs the credential mailbox for post.", Until: out.Pending[0].Auth.Expires,
		Auth: &execution.PendingAuth{Login: mailbox},
	}
	require.Empty(t, gocmp.Diff([]execution.Pending{want}, out.Pending, cmpopts.IgnoreFields(execution.PendingAuth{}, "ID", "Key", "Expires")))
	require.Equal(t, "post waits for a credential.", out.Text)
	require.Equal(t, event.InputRequired, out.Reason)
	require.InDelta(t, (15 * time.Minute).Seconds(), time.Until(want.Until).Seconds(), 60)
	require.Empty(t, h.toolRuns)
	require.Equal(t, []string{"started 1", "success 1", "waits 2"}, h.toolEvents())

	out = h.runTurn(sealedAnswer(t, out.Pending[0], "hunter2"))
	require.Equal(t, []string{"post 2 hunter2", "post 1 hunter2"}, h.toolRuns, "it lasts for the rest of the turn")
	require.Equal(t, "fetch", out.Pending[0].Tool, "no other tool has it")
	require.Equal(t, []string{"false", "did 2", "false", "did 1"}, resultTexts(out))
	require.NotContains(t, fmt.Sprintf("%+v %+v %+v", out, h.events, h.journal), "hunter2")

	out = h.runTurn(sealedAnswer(t, out.Pending[0], "hunter3"))
	require.Equal(t, []string{"post 2 hunter2", "post 1 hunter2", "fetch 2 hunter3"}, h.toolRuns)
	require.Equal(t, "done", out.Text)
}

// If a worker cannot open the credential, the call waits again for one that is sealed to another key. The new
// request says why.
// Req: LP-37
func TestLogin_AsksAgainForAnUnreadableCredential(t *testing.T) {
	for name, tc := range map[string]struct {
		spoil func(*loginScenario, *execution.Answer)
		why   string
	}{
		"another process": {func(h *loginScenario, _ *execution.Answer) { h.broker = broker.New("house-2") }, "the key that it was sealed to is gone"},
		"no credential":   {func(_ *loginScenario, a *execution.Answer) { a.Sealed = "" }, "it was allowed, and no credential came"},
		"sealed to another key": {func(h *loginScenario, a *execution.Answer) {
			a.Sealed = sealedAnswer(h.t, h.runTurn().Pending[0], "x").Sealed
		}, "it was not sealed to the key of this call"},
	} {
		t.Run(name, func(t *testing.T) {
			h := newLoginScenario(t, toolCallsReply("post"), scripted.Say("done"))
			first := h.runTurn().Pending[0]
			spoilt := sealedAnswer(t, first, "hunter2")
			tc.spoil(h, &spoilt)
			out := h.runTurn(spoilt)
			again := out.Pending[0]
			require.Equal(t, first.ID, again.ID)
			require.NotEqual(t, first.Auth.ID, again.Auth.ID)
			require.NotEqual(t, first.Auth.Key, again.Auth.Key)
			require.Contains(t, again.Reason, "It is asked for again: "+tc.why)
			require.Equal(t, []string{prepare.ReasonAuthAskedAgain, "waits 1"}, h.toolEvents())
			require.Empty(t, h.toolRuns)
			require.Equal(t, "done", h.runTurn(sealedAnswer(t, again, "hunter2")).Text)
			require.Equal(t, []string{"post 1 hunter2"}, h.toolRuns)
		})
	}
}

// An answer that arrives after the key has expired counts as a denial. The model may then call the tool again.
// Req: LP-37, OC-33
func TestLogin_AnswerAfterTheExpiryOfTheKeyIsADenial(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newLoginScenario(t, toolCallsReply("post"), toolCallsReply("post"), scripted.Say("done"))
		first := h.runTurn().Pending[0]
		time.Sleep(15*time.Minute + time.Nanosecond)
		late := sealedAnswer(t, first, "hunter2")
		require.True(t, late.Late)
		out := h.runTurn(late)
		require.Contains(t, resultTexts(out)[0], "nobody gave it the credential that it lacks in time")
		require.Contains(t, h.toolEvents(), prepare.ReasonAuthTimeout)
		require.Empty(t, h.toolRuns)
		second := out.Pending[0]
		require.NotEqual(t, first.Auth.ID, second.Auth.ID)
		require.Equal(t, "done", h.runTurn(sealedAnswer(t, second, "hunter2")).Text)
		require.Equal(t, []string{"post 1 hunter2"}, h.toolRuns)
	})
}

func TestLogin_AppliesDenialAndStop(t *testing.T) {
	for verdict, ends := range map[execution.Verdict]event.Reason{execution.Deny: event.Natural, execution.Stop: event.Stopped} {
		h := newLoginScenario(t, toolCallsReply("post"), scripted.Say("done"))
		p := h.runTurn().Pending[0]
		settled, err := pendingcall.CheckAnswers([]execution.Pending{p}, []execution.Answer{{ID: p.ID, Verdict: verdict, Text: "not mine"}}, time.Now())
		require.NoError(t, err)
		out := h.runTurn(settled...)
		require.Equal(t, ends, out.Reason)
		require.Empty(t, out.Pending)
		require.Empty(t, h.toolRuns)
	}
}

func TestLogin_DoesNotAskForAnAvailableCredential(t *testing.T) {
	h := newLoginScenario(t, toolCallsReply("post", "free"), scripted.Say("done"))
	h.turnCredentials = execution.Auth{Credentials: map[string]secret.Value{"mailbox": secret.New("hunter2")}}
	require.Equal(t, []string{"did 1", "truehunter2"}, resultTexts(h.runTurn()))
}

// After a tool's credential was rejected, the next call of the tool waits for another credential.
func TestLogin_AsksAgainForARejectedCredential(t *testing.T) {
	h := newLoginScenario(t, toolCallsReply("post"), toolCallsReply("post"), scripted.Say("done"))
	h.turnCredentials, h.rejectedPassword = execution.Auth{Credentials: map[string]secret.Value{"mailbox": secret.New("old")}}, "old"
	out := h.runTurn()
	require.Contains(t, resultTexts(out)[0], "the credential mailbox was not taken: it has expired")
	require.Len(t, out.Pending, 1)
	out = h.runTurn(sealedAnswer(t, out.Pending[0], "new"))
	require.Equal(t, []string{"post 1 old", "post 1 new"}, h.toolRuns)
	require.Equal(t, "done", out.Text)
}

// One answer can contain both the approval and the credential, in whatever order handlers ask for them.
func TestLogin_OneAnswerApprovesAndAuthenticates(t *testing.T) {
	wait := hook.BeforeEachTool(func(_ context.Context, c *hook.Call) error {
		c.Wait("It posts.", approvalDeadline.AddDate(100, 0, 0))
		return nil
	})
	login := hook.BeforeEachTool(func(ctx context.Context, c *hook.Call) error { c.Login(ctx, mailbox); return nil })
	for name, handlers := range map[string][]hook.Handler{"of the tool": {wait}, "approval first": {wait, login}, "login first": {login, wait}} {
		t.Run(name, func(t *testing.T) {
			h := newLoginScenario(t, toolCallsReply("post"), scripted.Say("done"))
			h.handlers = handlers
			p := h.runTurn().Pending[0]
			require.Equal(t, "It posts. The agent test needs the credential mailbox for post.", p.Reason)
			require.Equal(t, p.Auth.Expires, p.Until)
			require.Equal(t, "done", h.runTurn(sealedAnswer(t, p, "hunter2")).Text)
			require.Equal(t, []string{"post 1 hunter2"}, h.toolRuns)
		})
	}
}

// Concurrent calls of a tool each wait, but one credential is enough for all of them.
func TestLogin_ConcurrentCallsEachWait(t *testing.T) {
	h := newLoginScenario(t, toolCallsReply("post", "post", "fetch"), scripted.Say("done"))
	h.parallel = true
	out := h.runTurn()
	require.Len(t, out.Pending, 3)
	out = h.runTurn(sealedAnswer(t, out.Pending[0], "hunter2"))
	require.ElementsMatch(t, []string{"post 1 hunter2", "post 2 hunter2"}, h.toolRuns)
	require.Len(t, out.Pending, 1)
	h.runTurn(sealedAnswer(t, out.Pending[0], "hunter3"))
	require.Len(t, h.toolRuns, 3)
	require.Equal(t, "fetch 3 hunter3", h.toolRuns[2])
}

func TestLogin_ToolFailsWithoutABroker(t *testing.T) {
	h := newLoginScenario(t, toolCallsReply("post"), scripted.Say("done"))
	h.broker = nil
	require.Contains(t, resultTexts(h.runTurn())[0], "post lacks the credential mailbox, and nobody can be asked for it here")
	require.Empty(t, h.toolRuns)
}
