package local_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/troupe-dev/troupe/pkg/agent"
	"github.com/troupe-dev/troupe/pkg/agent/local"
	"github.com/troupe-dev/troupe/pkg/conversation"
	"github.com/troupe-dev/troupe/pkg/event"
	"github.com/troupe-dev/troupe/pkg/failure"
	"github.com/troupe-dev/troupe/pkg/hook"
	"github.com/troupe-dev/troupe/pkg/llm/scripted"
	"github.com/troupe-dev/troupe/pkg/memory"
	"github.com/troupe-dev/troupe/pkg/session"
	"github.com/troupe-dev/troupe/pkg/tool"
)

func turnTests() sessionTests {
	return sessionTests{
		"Turn_TwoTurnsShareTheConversation":     turnTwoTurnsShareTheConversation,
		"Turn_IsStoredBeforeItsEndIsSeen":       turnIsStoredBeforeItsEndIsSeen,
		"Turn_ContinuesWithoutAMessage":         turnContinuesWithoutAMessage,
		"Turn_KeepsToolRounds":                  turnKeepsToolRounds,
		"Turn_IsRejectedWhileAnotherRuns":       turnIsRejectedWhileAnotherRuns,
		"Turn_InvalidInputIsRejected":           turnInvalidInputIsRejected,
		"Turn_AnErrorKeepsTheMessages":          turnAnErrorKeepsTheMessages,
		"Turn_AtMaxIterationsHasAnAnswer":       turnAtMaxIterationsHasAnAnswer,
		"Turn_QuestionIsAnsweredByTheNextTurn":  turnQuestionIsAnsweredByTheNextTurn,
		"Turn_KeepsState":                       turnKeepsState,
		"Turn_AuthEndsWithTheTurn":              turnAuthEndsWithTheTurn,
		"Turn_StopAffectsOnlyTheRunningTurn":    turnStopAffectsOnlyTheRunningTurn,
		"Turn_IsCancelledByAReaderThatStops":    turnIsCancelledByAReaderThatStops,
		"Turn_IsCancelledByItsContext":          turnIsCancelledByItsContext,
		"Turn_GetsOnlyTheWindow":                turnGetsOnlyTheWindow,
		"Turn_OneAgentServesManySessions":       turnOneAgentServesManySessions,
		"Turn_LongTurnIsStoredWhole":            turnLongTurnIsStoredWhole,
		"Turn_AFlowKeepsItsAnswer":              turnAFlowKeepsItsAnswer,
		"Turn_HandlersSeeTheSession":            turnHandlersSeeTheSession,
		"Turn_StateThatCannotBeStoredIsAnError": turnStateThatCannotBeStoredIsAnError,
		"Turn_AnEmptyAnswerKeepsWhatWasFound":   turnAnEmptyAnswerKeepsWhatWasFound,
	}
}

// Req: CO-14, CO-15, CO-28, LP-2, LP-4, LP-13, LP-14, LP-24, LP-30
func turnTwoTurnsShareTheConversation(t *testing.T, store memory.Store) {
	a, model := scriptedAgent(t, agent.Config{Instructions: "Be brief."}, scripted.Say("Hi."), scripted.Say("Fine."))
	s := openSession(t, a, local.Config{Store: store})
	require.Regexp(t, "^[a-z0-9]{26}$", s.ID())
	require.Equal(t, session.Ready, s.State())
	require.Zero(t, s.Info().Turns)

	all, err := runTurn(t, s, local.Input{Text: "Hello"})
	require.NoError(t, err)
	require.Equal(t, []string{"user_input", "llm_call", "assistant", "turn_result"}, kindsOf(all))
	require.Equal(t, event.UserInput{Turn: 1, Prompt: "Hello"}, all[0].Payload)
	require.Equal(t, 1, resultOf(all).Turn)
	require.Equal(t, event.Natural, resultOf(all).Reason)
	first := all[0].Invocation

	all, err = runTurn(t, s, local.Input{Text: "How are you?"})
	require.NoError(t, err)
	require.Equal(t, event.UserInput{Turn: 2, Prompt: "How are you?"}, all[0].Payload)
	require.Equal(t, 2, resultOf(all).Turn)
	require.NotEqual(t, first, all[0].Invocation, "each turn has its own id")
	for i, e := range all[1:] {
		require.Greater(t, e.Sequence, all[i].Sequence)
	}

	requests := model.Requests()
	require.Equal(t, []string{"user: Hello"}, transcript(requests[0].Messages))
	require.Equal(t, []string{"user: Hello", "ai: Hi.", "user: How are you?"}, transcript(requests[1].Messages))
	require.Equal(t, []string{"Be brief.", "Be brief."}, []string{requests[0].System, requests[1].System})
	messages, err := s.Messages(t.Context(), 0)
	require.NoError(t, err)
	require.Equal(t, []string{"user: Hello", "ai: Hi.", "user: How are you?", "ai: Fine."}, transcript(messages))
	require.Equal(t, 2, messages[3].Turn)
	messages, err = s.Messages(t.Context(), 2)
	require.NoError(t, err)
	require.Equal(t, []string{"user: How are you?", "ai: Fine."}, transcript(messages))
	require.Equal(t, 2, s.Info().Turns)
	require.WithinDuration(t, time.Now(), s.Info().LastActivity, time.Minute)
}

// The user's message is durable before the first event, and the turn before its last event. The next turn may
// begin at once.
// Req: C-19, C-37, LP-7, LP-19
func turnIsStoredBeforeItsEndIsSeen(t *testing.T, store memory.Store) {
	a, _ := scriptedAgent(t, agent.Config{}, scripted.Say("Hi."), scripted.Say("Fine."))
	s := openSession(t, a, local.Config{Store: store})
	seen := 0
	for e, err := range s.Turn(t.Context(), local.Input{Text: "Hello"}) {
		require.NoError(t, err)
		said, info := storedMessages(t, store, s)
		if _, last := e.Payload.(event.TurnResult); !last {
			seen++
			require.Equal(t, []string{"user: Hello"}, said)
			require.Equal(t, session.Busy, info.State)
			require.Equal(t, session.Busy, s.State())
			continue
		}
		require.Equal(t, []string{"user: Hello", "ai: Hi."}, said)
		require.Equal(t, session.Ready, info.State)
		require.Equal(t, 1, info.Turns)
		require.Equal(t, session.Ready, s.State())
		ask(t, s, "How are you?")
	}
	require.Positive(t, seen)
	_, info := storedMessages(t, store, s)
	require.Equal(t, 2, info.Turns)
}

// Req: LP-8
func turnContinuesWithoutAMessage(t *testing.T, store memory.Store) {
	a, model := scriptedAgent(t, agent.Config{}, scripted.Say("One."), scripted.Say("Two."))
	s := openSession(t, a, local.Config{Store: store})
	ask(t, s, "Count")
	all, err := runTurn(t, s, local.Input{Continue: true})
	require.NoError(t, err)
	require.Equal(t, 2, resultOf(all).Turn)
	require.Equal(t, []string{"user: Count", "ai: One."}, transcript(model.Requests()[1].Messages))
	said, info := storedMessages(t, store, s)
	require.Equal(t, []string{"user: Count", "ai: One.", "ai: Two."}, said)
	require.Equal(t, 2, info.Turns)
}

// Req: CO-15, LP-20, LP-25
func turnKeepsToolRounds(t *testing.T, store memory.Store) {
	a, model := scriptedAgent(t, agent.Config{Tools: []tool.Tool{lookup(t)}}, lookupReply("oslo", "error"), scripted.Say("Sunny."), scripted.Say("Yes."))
	s := openSession(t, a, local.Config{Store: store})
	done := ask(t, s, "Weather?")
	want := []string{"user: Weather?", "ai: → lookup → lookup", "tool: found oslo", "tool: Error: down", "ai: Sunny."}
	said, _ := storedMessages(t, store, s)
	require.Equal(t, want, said)
	require.Equal(t, want[1:4], transcript(done.Rounds))
	require.Equal(t, want[4:], transcript(done.Messages))
	ask(t, s, "Sure?")
	require.Equal(t, append(want, "user: Sure?"), transcript(model.Requests()[2].Messages))
}

// Req: LP-7, C-10, C-21
func turnIsRejectedWhileAnotherRuns(t *testing.T, store memory.Store) {
	wait := make(chan struct{})
	a, _ := scriptedAgent(t, agent.Config{}, scripted.Reply{Deltas: []string{"Hi."}, Wait: wait}, scripted.Say("Fine."))
	s := openSession(t, a, local.Config{Store: store})
	other := openSession(t, a, local.Config{Store: store, ID: s.ID()})
	for e, err := range s.Turn(t.Context(), local.Input{Text: "Hello"}) {
		require.NoError(t, err)
		if _, first := e.Payload.(event.UserInput); !first {
			continue
		}
		requireRejected(t, s, failure.SessionBusy)
		elsewhere := requireRejected(t, other, failure.SessionBusy).Result.Failure
		left, err := time.ParseDuration(elsewhere.Facts["lease_left"])
		require.NoError(t, err)
		require.Greater(t, left, 10*time.Second)
		require.LessOrEqual(t, left, local.DefaultLease)
		require.Contains(t, elsewhere.Message, left.String())
		for name, op := range map[string]func(context.Context) error{"Save": s.Save, "Pause": s.Pause, "Close": s.Close, "Clear": s.Clear} {
			require.Equal(t, failure.SessionBusy, failure.ModeOf(op(t.Context())), name)
		}
		require.Equal(t, failure.SessionBusy, failure.ModeOf(other.Pause(t.Context())))
		require.NoError(t, s.Start(t.Context()), "it is started")
		_, err = s.Execute(t.Context(), local.Input{Text: "and me"}, nil)
		require.Equal(t, failure.SessionBusy, failure.ModeOf(err), "Execute returns the reason")
		close(wait)
	}
	said, _ := storedMessages(t, store, s)
	require.Equal(t, []string{"user: Hello", "ai: Hi."}, said)
	require.Equal(t, "Fine.", ask(t, other, "How are you?").Result.Text)
}

// Req: C-10, CO-49
func turnInvalidInputIsRejected(t *testing.T, store memory.Store) {
	a, _ := scriptedAgent(t, agent.Config{}, scripted.Say("Hi."))
	s := openSession(t, a, local.Config{Store: store})
	for name, in := range map[string]local.Input{
		"nothing":    {},
		"blank":      {Text: " \n"},
		"both":       {Text: "a", Continue: true},
		"too long":   {Text: strings.Repeat("a", conversation.MaxMessageBytes+1)},
		"no UTF-8":   {Text: "\xff"},
		"iterations": {Text: "a", MaxIterations: -1},
	} {
		all, err := runTurn(t, s, in)
		require.Equal(t, failure.UserInvalidInput, failure.ModeOf(err), name)
		require.Len(t, all, 1, name)
		require.Equal(t, "user_invalid_input", resultOf(all).ErrorType)
	}
	require.Equal(t, session.Ready, s.State())
	_, info := storedMessages(t, store, s)
	require.Zero(t, info.Turns)
	for name, c := range map[string]local.Config{
		"id": {Store: store, ID: "a b"}, "user": {Store: store, User: strings.Repeat("a", memory.MaxUserIDBytes+1)},
		"messages": {Store: store, MaxMessages: 1}, "window": {Store: store, Window: memory.MaxWindow + 1}, "lease": {Store: store, Lease: time.Millisecond},
	} {
		_, err := local.Open(t.Context(), a, c)
		require.Equal(t, failure.UserInvalidInput, failure.ModeOf(err), name)
	}
}

// Req: LP-17, LP-10b, C-2, LP-31
func turnAnErrorKeepsTheMessages(t *testing.T, store memory.Store) {
	down := failure.New(failure.ResourceAPI, "test", "the model is down")
	a, model := scriptedAgent(t, agent.Config{Tools: []tool.Tool{lookup(t)}}, lookupReply("oslo"), scripted.Fail(down), scripted.Say("Sunny."))
	s := openSession(t, a, local.Config{Store: store})
	all, err := runTurn(t, s, local.Input{Text: "Weather?"})
	require.ErrorIs(t, err, down)
	require.Equal(t, event.Failed, resultOf(all).Reason)
	require.Equal(t, "resource_api", resultOf(all).ErrorType)
	require.Equal(t, session.Failed, s.State())
	said, info := storedMessages(t, store, s)
	require.Equal(t, []string{"user: Weather?", "ai: → lookup (partial)", "tool: found oslo (partial)"}, said)
	require.Equal(t, session.Failed, info.State)

	// Another Session loads the failed turn and can try again.
	again := openSession(t, a, local.Config{Store: store, ID: s.ID()})
	require.Equal(t, session.Failed, again.State())
	all, err = runTurn(t, again, local.Input{Continue: true})
	require.NoError(t, err)
	require.Equal(t, "Sunny.", resultOf(all).Result.Text)
	require.Equal(t, []string{"user: Weather?", "ai: → lookup (partial)", "tool: found oslo (partial)"}, transcript(model.Requests()[2].Messages))
	require.Equal(t, session.Ready, again.State())
}

// If the model answers with an empty text, earlier tool results are kept.
// Req: LP-17
func turnAnEmptyAnswerKeepsWhatWasFound(t *testing.T, store memory.Store) {
	a, _ := scriptedAgent(t, agent.Config{Tools: []tool.Tool{lookup(t)}}, lookupReply("oslo"), scripted.Reply{}, scripted.Say("Sunny."))
	s := openSession(t, a, local.Config{Store: store})
	_, err := runTurn(t, s, local.Input{Text: "Weather?"})
	require.Equal(t, failure.AgentLogic, failure.ModeOf(err))
	said, _ := storedMessages(t, store, s)
	require.Equal(t, []string{"user: Weather?", "ai: → lookup (partial)", "tool: found oslo (partial)"}, said)
	_, err = runTurn(t, s, local.Input{Continue: true})
	require.NoError(t, err)
}

// Req: LP-15, C-8
func turnAtMaxIterationsHasAnAnswer(t *testing.T, store memory.Store) {
	a, model := scriptedAgent(t, agent.Config{Tools: []tool.Tool{lookup(t)}}, lookupReply("oslo"), scripted.Say("Sunny."))
	s := openSession(t, a, local.Config{Store: store})
	all, err := runTurn(t, s, local.Input{Text: "Weather?", MaxIterations: 1})
	require.NoError(t, err)
	require.Equal(t, event.MaxIterations, resultOf(all).Reason)
	require.Equal(t, 1, resultOf(all).Result.Iterations)
	require.Contains(t, kindsOf(all), "warning")
	require.Equal(t, session.Ready, s.State())
	// The next turn continues at the point where the failed turn stopped.
	_, err = runTurn(t, s, local.Input{Continue: true})
	require.NoError(t, err)
	require.Equal(t, []string{
		"user: Weather?", "ai: → lookup", "tool: found oslo", "ai: Task incomplete: Maximum iterations (1) reached.",
	}, transcript(model.Requests()[1].Messages))
}

// Req: LP-16, LP-32
func turnQuestionIsAnsweredByTheNextTurn(t *testing.T, store memory.Store) {
	asks, err := tool.Func("lookup", "Asks.", func(context.Context, topic) (string, error) { return "", tool.AskUser("Which town?") })
	require.NoError(t, err)
	a, model := scriptedAgent(t, agent.Config{Tools: []tool.Tool{asks}}, lookupReply("?"), scripted.Say("Sunny."))
	s := openSession(t, a, local.Config{Store: store})
	done := ask(t, s, "Weather?")
	require.Equal(t, event.InputRequired, done.Reason)
	require.Equal(t, session.InputRequired, s.State())
	again := openSession(t, a, local.Config{Store: store, ID: s.ID()})
	require.Equal(t, session.InputRequired, again.State(), "it outlives its process")
	ask(t, again, "Oslo")
	require.Equal(t, []string{
		"user: Weather?", "ai: → lookup", "tool: The user was asked: Which town?", "ai: Which town?", "user: Oslo",
	}, transcript(model.Requests()[1].Messages))
	require.Equal(t, session.Ready, again.State())
}

// Req: LP-20
func turnGetsOnlyTheWindow(t *testing.T, store memory.Store) {
	for _, noAutoSave := range []bool{false, true} {
		a, model := scriptedAgent(t, agent.Config{}, scripted.Say("1"), scripted.Say("2"), scripted.Say("3"), scripted.Say("4"))
		s := openSession(t, a, local.Config{Store: store, Window: 3, NoAutoSave: noAutoSave})
		for _, q := range []string{"a", "b", "c"} {
			ask(t, s, q)
		}
		require.NoError(t, s.Pause(t.Context()))
		again := openSession(t, a, local.Config{Store: store, ID: s.ID(), Window: 3, NoAutoSave: noAutoSave})
		ask(t, again, "d")
		require.Equal(t, []string{"user: b", "ai: 2", "user: c"}, transcript(model.Requests()[2].Messages))
		require.Equal(t, []string{"user: c", "ai: 3", "user: d"}, transcript(model.Requests()[3].Messages))
	}
}

// Req: LP-1
func turnOneAgentServesManySessions(t *testing.T, store memory.Store) {
	a := build(t, agent.Config{Model: echoModel{}})
	ended := make(chan error)
	for range 8 {
		s := openSession(t, a, local.Config{Store: store})
		go func() {
			for _, text := range []string{"a", "b", "c"} {
				done, err := s.Execute(t.Context(), local.Input{Text: s.ID() + text}, nil)
				if err == nil && done.Result.Text != "echo "+s.ID()+text {
					err = errors.New("the answer is of another session: " + done.Result.Text)
				}
				if err != nil {
					ended <- err
					return
				}
			}
			messages, err := s.Messages(t.Context(), 0)
			if err == nil && (len(messages) != 6 || slices.ContainsFunc(messages, func(m conversation.Message) bool {
				return !strings.Contains(m.Text,
					s.ID())
			})) {
				err = errors.New("the messages are not the messages of the session")
			}
			ended <- err
		}()
	}
	for range 8 {
		require.NoError(t, <-ended)
	}
}

// Req: CO-16, CO-17, CO-18
func turnHandlersSeeTheSession(t *testing.T, store memory.Store) {
	var seen []string
	note := hook.AfterUserInput(func(_ context.Context, turn *hook.Turn) error {
		info := turn.Info()
		seen = append(seen, info.Prompt)
		require.Equal(t, len(seen), info.Turn)
		require.Equal(t, "alice", info.User)
		require.Zero(t, turn.Iteration())
		require.Equal(t, "user: "+info.Prompt, transcript(turn.Messages())[len(turn.Messages())-1])
		require.Equal(t, []string{"user_input"}, kindsOf(turn.Entries()))
		require.Nil(t, turn.PendingTool())
		return turn.Memory().Set("seen", seen)
	})
	a, _ := scriptedAgent(t, agent.Config{Handlers: []hook.Handler{note}}, scripted.Say("1"), scripted.Say("2"))
	s := openSession(t, a, local.Config{Store: store, User: "alice"})
	ask(t, s, "a")
	require.Equal(t, "2", ask(t, s, "b").Result.Text)
	state, err := store.GetState(t.Context(), session.Ref{Tenant: local.DefaultTenant, Session: s.ID()})
	require.NoError(t, err)
	require.JSONEq(t, `["a","b"]`, string(state.Values["seen"]))
}
