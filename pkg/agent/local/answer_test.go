package local_test

import (
	"context"
	"encoding/json"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/troupe-dev/troupe/internal/pendingcall"
	"github.com/troupe-dev/troupe/internal/stepjournal"
	"github.com/troupe-dev/troupe/pkg/agent"
	"github.com/troupe-dev/troupe/pkg/agent/flow"
	"github.com/troupe-dev/troupe/pkg/agent/local"
	"github.com/troupe-dev/troupe/pkg/conversation"
	"github.com/troupe-dev/troupe/pkg/event"
	"github.com/troupe-dev/troupe/pkg/execution"
	"github.com/troupe-dev/troupe/pkg/failure"
	"github.com/troupe-dev/troupe/pkg/hook"
	"github.com/troupe-dev/troupe/pkg/llm/scripted"
	"github.com/troupe-dev/troupe/pkg/memory"
	"github.com/troupe-dev/troupe/pkg/session"
	"github.com/troupe-dev/troupe/pkg/tool"
)

func answerTests() sessionTests {
	return sessionTests{
		"Answer_Approves":                       answerApproves,
		"Answer_Denies":                         answerDenies,
		"Answer_Stops":                          answerStops,
		"Answer_LateOneDenies":                  answerLateOneDenies,
		"Answer_ClientResultIsToolResult":       answerClientResultIsToolResult,
		"Answer_CallsWaitOneByOne":              answerCallsWaitOneByOne,
		"Answer_ToSomeCallsKeepsTheRestPending": answerToSomeCallsKeepsTheRestPending,
		"Answer_TextAbandonsPendingCalls":       answerTextAbandonsPendingCalls,
		"Answer_InvalidIsRejected":              answerInvalidIsRejected,
		"Answer_OutlivesPauseAndClose":          answerOutlivesPauseAndClose,
		"Answer_FirstOfSeveralProcessesWins":    answerFirstOfSeveralProcessesWins,
		"Answer_ToAnotherAgentsCallIsRejected":  answerToAnotherAgentsCallIsRejected,
		"Answer_NeedsAJournal":                  answerNeedsAJournal,
		"Answer_TurnActsForTheAnsweringUser":    answerTurnActsForTheAnsweringUser,
		"Answer_ContinuesInsideAFlow":           answerContinuesInsideAFlow,
		"Answer_BringsACredential":              answerBringsACredential,
	}
}

// approvalGuard returns a handler that makes the tool lookup wait for an approval until the given time.
func approvalGuard(until time.Time) hook.Handler {
	return hook.BeforeEachTool(func(_ context.Context, c *hook.Call) error {
		if c.Name == "lookup" {
			c.Wait("May it look this up?", until)
		}
		return nil
	})
}

// openGuarded opens a session with an agent whose tool needs an approval. It returns the agent, the session, the
// queries that the tool ran, and the model.
func openGuarded(t *testing.T, store memory.Store, c agent.Config, replies ...scripted.Reply) (*agent.Agent, *local.Session, *[]string, *scripted.Model) {
	t.Helper()
	ran := &[]string{}
	found, err := tool.Func("lookup", "Looks something up.", func(_ context.Context, in topic) (string, error) {
		*ran = append(*ran, in.Query)
		return "found " + in.Query, nil
	})
	require.NoError(t, err)
	c.Tools = append(c.Tools, tool.WithEffect(execution.AtMostOnce, found))
	if c.Handlers == nil {
		c.Handlers = []hook.Handler{approvalGuard(time.Time{})}
	}
	a, model := scriptedAgent(t, c, replies...)
	return a, openSession(t, a, local.Config{Store: store}), ran, model
}

// answerTo returns an input with one answer to a pending call.
func answerTo(p execution.Pending, v execution.Verdict, text string) local.Input {
	return local.Input{Answers: []execution.Answer{{ID: p.ID, Verdict: v, Text: text}}}
}

// runAnswers runs a turn with answers to its end and returns its result.
func runAnswers(t *testing.T, s *local.Session, in local.Input) event.TurnResult {
	t.Helper()
	all, err := runTurn(t, s, in)
	require.NoError(t, err)
	return resultOf(all)
}

// runUntilWaiting runs a turn that must end with one pending call, and returns that call.
func runUntilWaiting(t *testing.T, s *local.Session, text string) execution.Pending {
	t.Helper()
	done := ask(t, s, text)
	require.Equal(t, event.InputRequired, done.Reason)
	require.Len(t, done.Result.Pending, 1)
	require.Equal(t, done.Result.Pending, s.Pending())
	require.Equal(t, session.InputRequired, s.State())
	return s.Pending()[0]
}

// The pending call is in the store. A second Session can approve it, and the call then runs once.
// Req: LP-16, LP-32, LP-10a, AD-32
func answerApproves(t *testing.T, store memory.Store) {
	a, s, ran, model := openGuarded(t, store, agent.Config{OutputKey: "said"}, lookupReply("oslo"), scripted.Say("Sunny."), scripted.Say("Yes."))
	done := ask(t, s, "Weather?")
	p := s.Pending()[0]
	require.Equal(t, []string{"lookup", `{"query": "oslo"}`, "May it look this up?"}, []string{p.Tool, p.Arguments, p.Reason})
	require.Equal(t, execution.NeedApproval, p.Needs)
	require.Equal(t, []string{"ai: " + done.Result.Text}, transcript(done.Messages), "the messages come again")
	require.Empty(t, *ran)
	said, info := storedMessages(t, store, s)
	require.Equal(t, []string{"user: Weather?", "ai: " + done.Result.Text}, said)
	require.Equal(t, session.InputRequired, info.State)
	require.Equal(t, info.WaitingTurn, s.Info().WaitingTurn)

	again := openSession(t, a, local.Config{Store: store, ID: s.ID()})
	require.Equal(t, session.InputRequired, again.State())
	require.Equal(t, []execution.Pending{p}, again.Pending())
	in := answerTo(p, execution.Approve, "")
	in.Auth = execution.Auth{Actor: "ann"}
	all, err := runTurn(t, again, in)
	require.NoError(t, err)
	require.Equal(t, 2, resultOf(all).Turn)
	require.Equal(t, "Sunny.", resultOf(all).Result.Text)
	require.Equal(t, event.UserInput{Turn: 2, Prompt: "Weather?"}, all[0].Payload)
	require.Equal(t, []string{"ai: → lookup", "tool: found oslo", "ai: Sunny."}, transcript(append(resultOf(all).Rounds, resultOf(all).Messages...)))
	require.Equal(t, []string{"oslo"}, *ran)
	require.Len(t, model.Requests(), 2, "the model call is not repeated")
	require.Equal(t, session.Ready, again.State())
	require.Empty(t, again.Pending())
	said, info = storedMessages(t, store, s)
	require.Equal(t, []string{"user: Weather?", "ai: " + done.Result.Text, "ai: → lookup", "tool: found oslo", "ai: Sunny."}, said)
	require.Equal(t, []int{2, 2}, []int{info.Turns, again.Info().Turns})
	require.Equal(t, info.Size.Messages, again.Info().Size.Messages)
	require.Empty(t, info.WaitingTurn)

	// A Session learns from the store that another Session has answered the call.
	require.Len(t, s.Pending(), 1)
	require.Equal(t, "Yes.", runAnswers(t, s, local.Input{Continue: true}).Result.Text)
	require.Empty(t, s.Pending())
}

// Req: LP-32, AD-32
func answerDenies(t *testing.T, store memory.Store) {
	_, s, ran, model := openGuarded(t, store, agent.Config{}, lookupReply("oslo"), scripted.Say("Then not."))
	done := runAnswers(t, s, answerTo(runUntilWaiting(t, s, "Weather?"), execution.Deny, "It is secret."))
	require.Equal(t, "Then not.", done.Result.Text)
	require.Empty(t, *ran)
	delivered := model.Requests()[1].Messages
	require.Contains(t, delivered[len(delivered)-1].Text, "It is secret.")
	require.Equal(t, session.Ready, s.State())
}

// Req: LP-32
func answerStops(t *testing.T, store memory.Store) {
	_, s, ran, model := openGuarded(t, store, agent.Config{}, lookupReply("oslo", "bergen"), scripted.Say("Fine."))
	done := runAnswers(t, s, answerTo(runUntilWaiting(t, s, "Weather?"), execution.Stop, ""))
	require.Equal(t, event.Stopped, done.Reason)
	require.True(t, done.Result.Stopped)
	require.Empty(t, *ran)
	require.Len(t, model.Requests(), 1)
	require.Equal(t, session.Ready, s.State())
	messages, err := s.Messages(t.Context(), 0)
	require.NoError(t, err)
	require.NoError(t, conversation.CheckRounds(messages))
	require.Equal(t, "Fine.", ask(t, s, "And now?").Result.Text)
}

// Req: OC-33
func answerLateOneDenies(t *testing.T, store memory.Store) {
	c := agent.Config{Handlers: []hook.Handler{approvalGuard(time.Now().Add(-time.Second))}}
	_, s, ran, model := openGuarded(t, store, c, lookupReply("oslo"), scripted.Say("Too bad."))
	p := runUntilWaiting(t, s, "Weather?")
	require.False(t, p.Until.IsZero())
	all, err := runTurn(t, s, answerTo(p, execution.Approve, ""))
	require.NoError(t, err)
	require.Equal(t, "Too bad.", resultOf(all).Result.Text)
	require.NotEmpty(t, warningReasons(all))
	require.Empty(t, *ran)
	require.Len(t, model.Requests(), 2)
}

// Req: LP-16, LP-32
func answerClientResultIsToolResult(t *testing.T, store memory.Store) {
	for verdict, want := range map[execution.Verdict]string{execution.Succeed: "tool: blue", execution.Fail: "tool: Error: blue"} {
		screen, err := tool.Client("screen", "Reads the screen.", json.RawMessage(`{"type": "object"}`))
		require.NoError(t, err)
		reads := scripted.Call(conversation.ToolCall{Name: "screen", Arguments: "{}"})
		_, s, _, model := openGuarded(t, store, agent.Config{Tools: []tool.Tool{screen}}, reads, scripted.Say("I see."))
		p := runUntilWaiting(t, s, "What do you see?")
		require.Equal(t, execution.NeedResult, p.Needs)
		require.Equal(t, "I see.", runAnswers(t, s, answerTo(p, verdict, "blue")).Result.Text)
		delivered := transcript(model.Requests()[1].Messages)
		require.Equal(t, want, delivered[len(delivered)-1])
	}
}

// After one call is approved, the next call waits for its own approval.
// Req: LP-32, AD-32
func answerCallsWaitOneByOne(t *testing.T, store memory.Store) {
	a, s, ran, model := openGuarded(t, store, agent.Config{}, lookupReply("oslo", "bergen"), lookupReply("bodø"), scripted.Say("Done."))
	p := runUntilWaiting(t, s, "Weather?")
	seen := map[string]bool{}
	for i, query := range []string{"oslo", "bergen", "bodø"} {
		require.Contains(t, p.Arguments, query)
		require.False(t, seen[p.ID], "each call has its id")
		seen[p.ID] = true
		require.Len(t, *ran, i)
		s = openSession(t, a, local.Config{Store: store, ID: s.ID()})
		done := runAnswers(t, s, answerTo(p, execution.Approve, ""))
		require.Equal(t, i+2, done.Turn)
		if i == 2 {
			require.Equal(t, "Done.", done.Result.Text)
			break
		}
		require.Equal(t, event.InputRequired, done.Reason)
		require.Len(t, s.Pending(), 1)
		p = s.Pending()[0]
	}
	require.Equal(t, []string{"oslo", "bergen", "bodø"}, *ran)
	require.Len(t, model.Requests(), 3)
	messages, err := s.Messages(t.Context(), 0)
	require.NoError(t, err)
	require.NoError(t, conversation.CheckRounds(messages))
	require.Len(t, messages, 1+3+(1+2)+(1+1)+1, "no round is there twice")
}

// An answer to one of several parallel calls leaves the others pending.
// Req: LP-32
func answerToSomeCallsKeepsTheRestPending(t *testing.T, store memory.Store) {
	_, s, ran, model := openGuarded(t, store, agent.Config{Parallel: true}, lookupReply("oslo", "bergen"), scripted.Say("Done."))
	ask(t, s, "Weather?")
	both := s.Pending()
	require.Len(t, both, 2)
	require.Equal(t, event.InputRequired, runAnswers(t, s, answerTo(both[1], execution.Approve, "")).Reason)
	require.Equal(t, []string{"bergen"}, *ran)
	left := s.Pending()
	require.Len(t, left, 1)
	require.Equal(t, both[0].Arguments, left[0].Arguments)
	require.Equal(t, pendingcall.ID(2, 1, 2), left[0].ID, "its id is of the new turn, so that an answer to the old call is not an answer to it")
	require.Equal(t, "Done.", runAnswers(t, s, answerTo(left[0], execution.Deny, "")).Result.Text)
	require.Equal(t, []string{"bergen"}, *ran)
	require.Len(t, model.Requests(), 2)
}

// Req: LP-32
func answerTextAbandonsPendingCalls(t *testing.T, store memory.Store) {
	_, s, ran, model := openGuarded(t, store, agent.Config{}, lookupReply("oslo"), scripted.Say("Never mind."), scripted.Say("Fine."))
	p := runUntilWaiting(t, s, "Weather?")
	done := ask(t, s, "Leave it.")
	require.Equal(t, "Never mind.", done.Result.Text)
	require.Empty(t, s.Pending())
	require.Equal(t, session.Ready, s.State())
	require.NoError(t, conversation.CheckRounds(model.Requests()[1].Messages))
	_, err := runTurn(t, s, answerTo(p, execution.Approve, ""))
	require.Equal(t, failure.UserInvalidInput, failure.ModeOf(err))
	require.ErrorContains(t, err, "no call waits")
	require.Equal(t, session.Ready, s.State())
	require.Empty(t, *ran)
	require.Equal(t, "Fine.", ask(t, s, "And?").Result.Text)
}

// Req: LP-9, LP-10a, LP-11
func answerOutlivesPauseAndClose(t *testing.T, store memory.Store) {
	for name, do := range map[string]func(*local.Session, context.Context) error{
		"save": (*local.Session).Save, "pause": (*local.Session).Pause, "close": (*local.Session).Close, "clear": (*local.Session).Clear,
		"compact": func(s *local.Session, ctx context.Context) error { _, err := s.Compact(ctx, 1, ""); return err },
	} {
		a, s, ran, _ := openGuarded(t, store, agent.Config{}, lookupReply("oslo"), scripted.Say("Sunny."))
		p := runUntilWaiting(t, s, "Weather?")
		require.NoError(t, do(s, t.Context()), name)
		if name == "clear" {
			require.Empty(t, s.Pending())
			_, err := runTurn(t, s, answerTo(p, execution.Approve, ""))
			require.Equal(t, failure.UserInvalidInput, failure.ModeOf(err))
			continue
		}
		again := openSession(t, a, local.Config{Store: store, ID: s.ID()})
		require.Equal(t, session.InputRequired, again.State(), name)
		require.Equal(t, []execution.Pending{p}, again.Pending(), name)
		require.NoError(t, s.Start(t.Context()))
		require.Equal(t, "Sunny.", runAnswers(t, s, answerTo(p, execution.Approve, "")).Result.Text, name)
		require.Len(t, *ran, 1)
	}
}

// The turn that continues acts in the name of the person who answered. It sees the session as it was when the call
// was made.
// Req: LP-18, LP-32
func answerTurnActsForTheAnsweringUser(t *testing.T, store memory.Store) {
	var seen []string
	whoami, err := tool.Func("lookup", "Says who asks.", func(ctx context.Context, _ topic) (string, error) {
		auth, _ := execution.AuthFrom(ctx)
		seen = append(seen, auth.Actor)
		return "done", nil
	})
	require.NoError(t, err)
	counts := hook.BeforeAgent(func(_ context.Context, turn *hook.Turn) (string, error) {
		return "", turn.Memory().Set("began", fmt.Sprint(len(turn.Messages())))
	})
	a, _ := scriptedAgent(t, agent.Config{Tools: []tool.Tool{whoami}, Handlers: []hook.Handler{counts, approvalGuard(time.Time{})}}, lookupReply("x"),
		scripted.Say("You."))
	s := openSession(t, a, local.Config{Store: store})
	_, err = s.Execute(t.Context(), local.Input{Text: "Who?", Auth: execution.Auth{Actor: "ann"}}, nil)
	require.NoError(t, err)
	ref := session.Ref{Tenant: local.DefaultTenant, Session: s.ID()}
	state, err := store.GetState(t.Context(), ref)
	require.NoError(t, err)
	require.Empty(t, state.Values, "nothing of the turn is stored yet")
	waits := s.Info().WaitingTurn
	call := s.Pending()[0]
	in := answerTo(call, execution.Approve, "")
	in.Auth.Actor = "bob"
	var open session.Turn
	for e, err := range s.Turn(t.Context(), in) {
		require.NoError(t, err)
		if e.Kind() != "user_input" {
			continue
		}
		require.Empty(t, s.Pending())
		_, info := storedMessages(t, store, s)
		found, err := store.BeginTurn(t.Context(), memory.Begin{
			Ref: ref, TurnID: info.OpenTurn, TraceID: "0af7651916cd43dd8448eb211c80319c",
			Fingerprint: info.OpenTurn, LeaseTTL: time.Minute, Window: 1, LookupOnly: true,
		})
		require.NoError(t, err)
		open = found.Turn
	}
	require.Equal(t, waits, open.Continues)
	require.Equal(t, 2, open.Attempt)
	require.Equal(t, []execution.Answer{{
		ID: call.ID, Verdict: execution.Approve, By: "bob", Agent: "research", Digest: stepjournal.CallDigest(call.Tool, call.Arguments),
	}}, open.Answers)
	require.Equal(t, []string{"bob"}, seen)
	state, err = store.GetState(t.Context(), ref)
	require.NoError(t, err)
	require.JSONEq(t, `"1"`, string(state.Values["began"]))
}

// A flow continues inside the agent whose call waited. The agents before it do not run again.
// Req: LP-32
func answerContinuesInsideAFlow(t *testing.T, store memory.Store) {
	first, asked := scriptedAgent(t, agent.Config{Name: "first"}, scripted.Say("One."))
	second, _, ran, guardedModel := openGuarded(t, store, agent.Config{Name: "second"}, lookupReply("oslo"), scripted.Say("Two."))
	third, last := scriptedAgent(t, agent.Config{Name: "third"}, scripted.Say("Three."))
	flow, err := flow.Sequence(agent.Config{Name: "flow"}, first, second, third)
	require.NoError(t, err)
	s := openSession(t, flow, local.Config{Store: store})
	p := runUntilWaiting(t, s, "Count")
	require.Empty(t, last.Requests())
	s = openSession(t, flow, local.Config{Store: store, ID: s.ID()})
	require.Equal(t, "Three.", runAnswers(t, s, answerTo(p, execution.Approve, "")).Result.Text)
	require.Equal(t, []string{"oslo"}, *ran)
	require.Equal(t, []int{1, 2, 1}, []int{len(asked.Requests()), len(guardedModel.Requests()), len(last.Requests())})
	said, _ := storedMessages(t, store, s)
	require.Equal(t, []string{"user: Count", "ai: lookup waits for an approval.", "ai: Three."}, said)
}
