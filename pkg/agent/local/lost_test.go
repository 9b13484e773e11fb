package local_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/troupe-dev/troupe/internal/stepjournal"
	"github.com/troupe-dev/troupe/pkg/agent"
	"github.com/troupe-dev/troupe/pkg/agent/local"
	"github.com/troupe-dev/troupe/pkg/conversation"
	"github.com/troupe-dev/troupe/pkg/event"
	"github.com/troupe-dev/troupe/pkg/execution"
	"github.com/troupe-dev/troupe/pkg/failure"
	"github.com/troupe-dev/troupe/pkg/llm/scripted"
	"github.com/troupe-dev/troupe/pkg/memory"
	"github.com/troupe-dev/troupe/pkg/session"
	"github.com/troupe-dev/troupe/pkg/tool"
)

func lostTests() sessionTests {
	return sessionTests{
		"Lost_TurnIsTakenOver":             lostTurnIsTakenOver,
		"Lost_TurnIsClosedByANewTurn":      lostTurnIsClosedByANewTurn,
		"Lost_TurnKeepsItsLease":           lostTurnKeepsItsLease,
		"Lost_WhileTheTurnWasStored":       lostWhileTheTurnWasStored,
		"Lost_TurnDoesNotPreventPause":     lostTurnDoesNotPreventPause,
		"Lost_TurnOfTheMeshIsNotTakenOver": lostTurnOfTheMeshIsNotTakenOver,
		"Lost_SlowProcessIsFenced":         lostSlowProcessIsFenced,
	}
}

// loseProcess stores an open turn and its journal, as a process leaves them that was killed during its second
// model call.
func loseProcess(t *testing.T, store memory.Store, s *local.Session) memory.Lease {
	t.Helper()
	ref := session.Ref{Tenant: local.DefaultTenant, Session: s.ID()}
	begun, err := store.BeginTurn(t.Context(), memory.Begin{
		Ref: ref, TurnID: "lost", TraceID: "0af7651916cd43dd8448eb211c80319c", Fingerprint: "lost",
		Message: conversation.User("Weather?"), LeaseTTL: time.Minute, Window: 10,
	})
	require.NoError(t, err)
	require.Equal(t, memory.StatusBegun, begun.Status)
	lease := memory.Lease{Ref: ref, TurnID: "lost", Epoch: begun.Turn.Epoch}
	said := conversation.Assistant("", "I look it up.")
	said.ToolCalls = []conversation.ToolCall{{ID: "c1", Name: "lookup", Arguments: `{"query": "oslo"}`}}
	digest := stepjournal.CallDigest("lookup", `{"query": "oslo"}`)
	require.NoError(t, store.Record(t.Context(), lease, 1, []execution.Entry{
		{Number: 1, Phase: execution.Done, Reply: said, Usage: execution.Usage{ModelCalls: 1}},
		{Number: 2, Phase: execution.Intent, Tool: "lookup", Digest: digest, Effect: execution.AtMostOnce},
		{Number: 2, Phase: execution.Done, Tool: "lookup", Digest: digest, Effect: execution.AtMostOnce, Status: "success", Text: "rain"},
	}))
	return lease
}

// openWithRunCount returns a new session, its agent and model, and the number of runs of the agent's tool.
func openWithRunCount(t *testing.T, store memory.Store, replies ...scripted.Reply) (*agent.Agent, *scripted.Model, *local.Session, *int) {
	t.Helper()
	ran := new(int)
	found, err := tool.Func("lookup", "Looks something up.", func(context.Context, topic) (string, error) { *ran++; return "sun", nil })
	require.NoError(t, err)
	a, model := scriptedAgent(t, agent.Config{Tools: []tool.Tool{tool.WithEffect(execution.AtMostOnce, found)}}, replies...)
	return a, model, openSession(t, a, local.Config{Store: store}), ran
}

// Continue takes over the lost turn. It repeats no model call and runs no tool twice.
// Req: LP-8, LP-10a, LP-31
func lostTurnIsTakenOver(t *testing.T, store memory.Store) {
	a, model, s, ran := openWithRunCount(t, store, scripted.Say("It rains."), scripted.Say("Yes."))
	lease := loseProcess(t, store, s)
	require.NoError(t, store.ReleaseTurn(t.Context(), lease))
	again := openSession(t, a, local.Config{Store: store, ID: s.ID()})
	require.Equal(t, session.Ready, again.State())
	all, err := runTurn(t, again, local.Input{Continue: true})
	require.NoError(t, err)
	require.Equal(t, 1, resultOf(all).Turn)
	require.Equal(t, "It rains.", resultOf(all).Result.Text)
	require.Equal(t, 2, resultOf(all).Result.Usage.ModelCalls)
	require.Zero(t, *ran)
	require.Len(t, model.Requests(), 1)
	said, info := storedMessages(t, store, s)
	require.Equal(t, []string{"user: Weather?", "ai: I look it up. → lookup", "tool: rain", "ai: It rains."}, said)
	require.Equal(t, session.Ready, info.State)
	require.Equal(t, 1, info.Turns)
	require.Equal(t, 2, ask(t, again, "Sure?").Turn)
}

// Req: LP-10a, LP-17
func lostTurnIsClosedByANewTurn(t *testing.T, store memory.Store) {
	a, model, s, _ := openWithRunCount(t, store, scripted.Say("Hi."))
	require.NoError(t, store.ReleaseTurn(t.Context(), loseProcess(t, store, s)))
	again := openSession(t, a, local.Config{Store: store, ID: s.ID()})
	require.Equal(t, 2, ask(t, again, "Hello?").Turn)
	require.Equal(t, []string{"user: Weather?", "ai: I look it up. (partial)", "user: Hello?"}, transcript(model.Requests()[0].Messages))
	said, info := storedMessages(t, store, s)
	require.Len(t, said, 4)
	require.Equal(t, info.Size.Messages, again.Info().Size.Messages)
}

// The session is busy until the lease of the lost process ends, because other processes cannot know before that it
// is lost.
// Req: LP-7, C-21
func lostTurnKeepsItsLease(t *testing.T, store memory.Store) {
	a, _, s, _ := openWithRunCount(t, store, scripted.Say("It rains."))
	lease := loseProcess(t, store, s)
	for _, noAutoSave := range []bool{false, true} {
		again := openSession(t, a, local.Config{Store: store, ID: s.ID(), NoAutoSave: noAutoSave})
		require.Equal(t, session.Busy, again.State())
		require.Equal(t, failure.SessionBusy, failure.ModeOf(again.Pause(t.Context())))
		require.Equal(t, failure.SessionBusy, failure.ModeOf(again.Clear(t.Context())))
		if noAutoSave {
			continue
		}
		all, err := runTurn(t, again, local.Input{Continue: true})
		require.NoError(t, err)
		require.Len(t, all, 1)
		why := resultOf(all).Result.Failure
		require.Equal(t, failure.SessionBusy, why.Mode)
		left, err := time.ParseDuration(why.Facts["lease_left"])
		require.NoError(t, err)
		require.Greater(t, left, 30*time.Second)
		require.Equal(t, requireRejected(t, again, failure.SessionBusy).Result.Failure.Facts["turn_id"], why.Facts["turn_id"])
		require.NoError(t, again.Close(t.Context()), "it continues elsewhere")
		require.Equal(t, session.Closed, again.State())
		require.NoError(t, again.Start(t.Context()))
		require.NoError(t, store.RenewTurn(t.Context(), lease, memory.MinLeaseTTL))
		_, err = again.Execute(t.Context(), local.Input{Continue: true}, nil)
		for failure.Is(err, failure.SessionBusy) {
			<-time.After(50 * time.Millisecond)
			_, err = again.Execute(t.Context(), local.Input{Continue: true}, nil)
		}
		require.NoError(t, err)
		loseProcess(t, storeWithTurnID{store, "lost-2"}, s)
	}
}

// storeWithTurnID is a store that gives every turn the same id.
type storeWithTurnID struct {
	memory.Store
	id string
}

func (s storeWithTurnID) BeginTurn(ctx context.Context, b memory.Begin) (memory.BeginResult, error) {
	b.TurnID, b.Fingerprint = s.id, s.id
	return s.Store.BeginTurn(ctx, b)
}

func (s storeWithTurnID) Record(ctx context.Context, h memory.Lease, step int, entries []execution.Entry) error {
	h.TurnID = s.id
	return s.Store.Record(ctx, h, step, entries)
}

// The part of the turn that was stored is kept. The next turn comes after it.
func lostWhileTheTurnWasStored(t *testing.T, store memory.Store) {
	a, model, s, _ := openWithRunCount(t, store, scripted.Say("It rains."))
	lease := loseProcess(t, store, s)
	said := conversation.Assistant("research", "")
	said.ToolCalls = []conversation.ToolCall{{ID: "c1", Name: "lookup", Arguments: "{}"}}
	_, err := store.CommitStep(t.Context(), memory.Commit{
		Ref: lease.Ref, TurnID: lease.TurnID, Epoch: lease.Epoch, Base: 1, Result: execution.Result{Step: 1, Agent: "research"},
		Rounds: []memory.RoundMessage{{Message: said}, {Message: conversation.Message{Role: conversation.RoleTool, Text: "rain", ToolCallID: "c1"}}},
	})
	require.NoError(t, err)
	require.NoError(t, store.ReleaseTurn(t.Context(), lease))
	again := openSession(t, a, local.Config{Store: store, ID: s.ID()})
	all, err := runTurn(t, again, local.Input{Continue: true})
	require.NoError(t, err)
	require.Equal(t, 2, resultOf(all).Turn)
	require.Equal(t, []string{"user: Weather?", "ai: → lookup", "tool: rain"}, transcript(model.Requests()[0].Messages))
	require.Equal(t, session.Ready, again.State())
}

// Req: LP-9, LP-10a, LP-11
func lostTurnDoesNotPreventPause(t *testing.T, store memory.Store) {
	for name, do := range map[string]func(*local.Session, context.Context) error{
		"pause": (*local.Session).Pause, "close": (*local.Session).Close, "clear": (*local.Session).Clear,
		"compact": func(s *local.Session, ctx context.Context) error { _, err := s.Compact(ctx, 1, ""); return err },
	} {
		for _, noAutoSave := range []bool{false, true} {
			a, _, s, _ := openWithRunCount(t, store, scripted.Say("Hi."))
			require.NoError(t, store.ReleaseTurn(t.Context(), loseProcess(t, store, s)))
			again := openSession(t, a, local.Config{Store: store, ID: s.ID(), NoAutoSave: noAutoSave})
			require.NoError(t, do(again, t.Context()), name)
			_, info := storedMessages(t, store, s)
			require.NotEqual(t, session.Busy, info.State)
			require.Empty(t, info.OpenTurn)
			require.NoError(t, again.Start(t.Context()))
			require.Equal(t, 2, ask(t, again, "Hello?").Turn)
		}
	}
}

// A local session cannot take over a turn that a mesh began in the same conversation.
func lostTurnOfTheMeshIsNotTakenOver(t *testing.T, store memory.Store) {
	a, _, s, _ := openWithRunCount(t, store, scripted.Say("Hi."), scripted.Say("Hi."))
	begin := func(id string) memory.Lease {
		ref := session.Ref{Tenant: local.DefaultTenant, Session: s.ID()}
		begun, err := store.BeginTurn(t.Context(), memory.Begin{
			Ref: ref, TurnID: id, TraceID: "0af7651916cd43dd8448eb211c80319c", Fingerprint: "of the mesh",
			Message: conversation.User("Weather?"), LeaseTTL: time.Minute, Window: 10,
		})
		require.NoError(t, err)
		return memory.Lease{Ref: ref, TurnID: id, Epoch: begun.Turn.Epoch}
	}
	lease := begin("t1")
	again := openSession(t, a, local.Config{Store: store, ID: s.ID()})
	requireRejected(t, again, failure.SessionBusy)
	require.Equal(t, failure.SessionBusy, failure.ModeOf(again.Pause(t.Context())))
	require.NoError(t, store.ReleaseTurn(t.Context(), lease))
	all, err := runTurn(t, again, local.Input{Continue: true})
	require.NoError(t, err)
	require.Equal(t, 2, resultOf(all).Turn)
}

// A process that was only slow finds its turn taken over. Its later writes are rejected.
// Req: C-21
func lostSlowProcessIsFenced(t *testing.T, store memory.Store) {
	never := make(chan struct{})
	a, _ := scriptedAgent(t, agent.Config{}, scripted.Reply{Deltas: []string{"Too late."}, Wait: never}, scripted.Say("Fine."))
	slow := openSession(t, a, local.Config{Store: store, Lease: memory.MinLeaseTTL})
	b, _ := scriptedAgent(t, agent.Config{}, scripted.Say("Mine."))
	other := openSession(t, b, local.Config{Store: store, ID: slow.ID()})
	var done event.TurnResult
	var failed error
	for e, err := range slow.Turn(t.Context(), local.Input{Text: "Hello"}) {
		failed = err
		switch p := e.Payload.(type) {
		case event.UserInput:
			ref := session.Ref{Tenant: local.DefaultTenant, Session: slow.ID()}
			_, info := storedMessages(t, store, slow)
			found, err := store.BeginTurn(t.Context(), memory.Begin{
				Ref: ref, TurnID: info.OpenTurn, TraceID: "0af7651916cd43dd8448eb211c80319c",
				Fingerprint: info.OpenTurn, LeaseTTL: time.Minute, Window: 1, LookupOnly: true,
			})
			require.NoError(t, err)
			require.NoError(t, store.ReleaseTurn(t.Context(), memory.Lease{Ref: ref, TurnID: info.OpenTurn, Epoch: found.Turn.Epoch}))
			require.Equal(t, 2, ask(t, other, "Anybody?").Turn)
		case event.TurnResult:
			done = p
		}
	}
	require.Equal(t, failure.Fenced, failure.ModeOf(failed), "%v", failed)
	require.Equal(t, "fenced", done.ErrorType)
	require.Equal(t, event.Failed, done.Reason)
	require.Equal(t, session.Failed, slow.State())
	require.Equal(t, 3, ask(t, slow, "Again").Turn)
	said, _ := storedMessages(t, store, slow)
	require.Equal(t, []string{"user: Hello", "user: Anybody?", "ai: Mine.", "user: Again", "ai: Fine."}, said)
}
