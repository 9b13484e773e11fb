package local_test

import (
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"

	"github.com/troupe-dev/troupe/pkg/agent"
	"github.com/troupe-dev/troupe/pkg/agent/local"
	"github.com/troupe-dev/troupe/pkg/event"
	"github.com/troupe-dev/troupe/pkg/failure"
	"github.com/troupe-dev/troupe/pkg/llm/scripted"
	"github.com/troupe-dev/troupe/pkg/session"
	"github.com/troupe-dev/troupe/pkg/tool"
)

// The turn was stored, but the store's response was lost. Continue returns the stored answer without another model
// call. A new text gets a new answer.
// Req: LP-8, LP-17
func TestSession_FindsAnUndeliveredAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, saves := range []bool{false, true} {
			c := agent.Config{Tools: []tool.Tool{lookup(t)}}
			s, model, wires, store := openWithOutages(t, c, local.Config{}, lookupReply("x"), scripted.Say("1"), scripted.Say("2"))
			*wires = lostMethods{answers: []string{"CommitStep"}, calls: []string{"FailTurn"}}
			runToError(t, s, local.Input{Text: "a"}, failure.SystemNetwork)
			require.Equal(t, session.Failed, s.State())
			wires.heal()
			if saves {
				require.NoError(t, s.Save(t.Context()))
				require.Equal(t, session.Ready, s.State(), "the turn has its answer")
			}
			*wires = lostMethods{calls: []string{"LoadHistory"}}
			runToError(t, s, local.Input{Continue: true}, failure.SystemNetwork)
			wires.heal()
			all, err := runTurn(t, s, local.Input{Continue: true})
			require.NoError(t, err)
			require.Equal(t, []string{"turn_result"}, kindsOf(all))
			done := resultOf(all)
			require.Equal(t, 1, done.Turn)
			require.Equal(t, event.Natural, done.Reason)
			require.Equal(t, "1", done.Result.Text)
			require.Equal(t, 2, done.Result.Usage.ModelCalls)
			require.Equal(t, []string{"ai: → lookup", "tool: found x", "ai: 1"}, transcript(append(done.Rounds, done.Messages...)))
			require.Len(t, model.Requests(), 2)
			require.Equal(t, session.Ready, s.State())
			said, info := storedMessages(t, store, s)
			require.Equal(t, []string{"user: a", "ai: → lookup", "tool: found x", "ai: 1"}, said)
			require.Equal(t, []int64{1, 2}, []int64{int64(s.Info().Turns), s.Info().Size.Messages})
			require.Equal(t, 1, info.Turns)
			all, err = runTurn(t, s, local.Input{Continue: true})
			require.NoError(t, err)
			require.Equal(t, 2, resultOf(all).Turn, "it is found once")
			require.Equal(t, "2", resultOf(all).Result.Text)
		}
	})
}

func TestSession_StoresAnUndeliveredAnswerOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, model, wires, store := openWithOutages(t, agent.Config{}, local.Config{}, scripted.Say("1"), scripted.Say("2"))
		*wires = lostMethods{answers: []string{"CommitStep"}, calls: []string{"FailTurn"}}
		runToError(t, s, local.Input{Text: "a"}, failure.SystemNetwork)
		wires.heal()
		require.Equal(t, 2, ask(t, s, "b").Turn)
		require.Equal(t, []string{"user: a", "ai: 1", "user: b"}, transcript(model.Requests()[1].Messages))
		said, info := storedMessages(t, store, s)
		require.Equal(t, []string{"user: a", "ai: 1", "user: b", "ai: 2"}, said)
		require.Equal(t, 2, info.Turns)
	})
}

// A failed turn stays failed if the response of the store was lost. Continue then tries again.
// Req: LP-17
func TestSession_RetriesAnUndeliveredFailure(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		down := failure.New(failure.ResourceAPI, "test", "the model is down")
		s, _, wires, store := openWithOutages(t, agent.Config{}, local.Config{}, scripted.Fail(down), scripted.Say("1"))
		*wires = lostMethods{answers: []string{"FailTurn"}}
		runToError(t, s, local.Input{Text: "a"}, failure.ResourceAPI)
		wires.heal()
		all, err := runTurn(t, s, local.Input{Continue: true})
		require.NoError(t, err)
		require.Equal(t, 2, resultOf(all).Turn)
		said, _ := storedMessages(t, store, s)
		require.Equal(t, []string{"user: a", "ai: 1"}, said)
	})
}

// The process was lost after its turn was stored. The process that waits for its lease finds the answer.
// Req: LP-8, LP-10a
func TestSession_FindsTheAnswerOfAnotherProcess(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, model, wires, store := openWithOutages(t, agent.Config{}, local.Config{}, scripted.Say("1"), scripted.Say("2"))
		a, err := agent.New(agent.Config{Name: "research", Model: model})
		require.NoError(t, err)
		var other *local.Session
		*wires = lostMethods{answers: []string{"CommitStep"}, calls: []string{"FailTurn"}}
		for e, err := range s.Turn(t.Context(), local.Input{Text: "a"}) {
			if err != nil {
				break
			}
			if _, begins := e.Payload.(event.UserInput); begins {
				other, err = local.Open(t.Context(), a, local.Config{Store: store, ID: s.ID()})
				require.NoError(t, err)
				require.Equal(t, session.Busy, other.State())
			}
		}
		all, err := runTurn(t, other, local.Input{Continue: true})
		require.NoError(t, err)
		require.Equal(t, []string{"turn_result"}, kindsOf(all))
		require.Equal(t, "1", resultOf(all).Result.Text)
		require.Len(t, model.Requests(), 1)
		require.Equal(t, session.Ready, other.State())
	})
}
