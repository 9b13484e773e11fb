package local_test

import (
	"context"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/troupe-dev/troupe/pkg/agent"
	"github.com/troupe-dev/troupe/pkg/agent/local"
	"github.com/troupe-dev/troupe/pkg/conversation"
	"github.com/troupe-dev/troupe/pkg/event"
	"github.com/troupe-dev/troupe/pkg/execution"
	"github.com/troupe-dev/troupe/pkg/failure"
	"github.com/troupe-dev/troupe/pkg/hook"
	"github.com/troupe-dev/troupe/pkg/llm/scripted"
	"github.com/troupe-dev/troupe/pkg/memory"
	"github.com/troupe-dev/troupe/pkg/memory/inmem"
	"github.com/troupe-dev/troupe/pkg/session"
	"github.com/troupe-dev/troupe/pkg/tool"
)

// lossyStore is a store whose calls can be lost. A call whose response is lost has taken effect.
type lossyStore struct {
	memory.Store
	// lost reports whether the call of a method is lost before the store, and whether its response is lost.
	lost func(method string) (call, answer bool)
}

func callThrough[T any](l *lossyStore, method string, call func() (T, error)) (T, error) {
	lostCall, lostAnswer := l.lost(method)
	var none T
	if lostCall {
		return none, errOutage
	}
	out, err := call()
	if lostAnswer {
		return none, errOutage
	}
	return out, err
}

var errOutage = failure.New(failure.SystemNetwork, "test", "the store cannot be reached")

func (l *lossyStore) BeginTurn(ctx context.Context, b memory.Begin) (memory.BeginResult, error) {
	method := "BeginTurn"
	if b.LookupOnly {
		method = "FindTurn"
	}
	return callThrough(l, method, func() (memory.BeginResult, error) { return l.Store.BeginTurn(ctx, b) })
}

func (l *lossyStore) RenewTurn(ctx context.Context, h memory.Lease, lease time.Duration) error {
	_, err := callThrough(l, "RenewTurn", func() (any, error) { return nil, l.Store.RenewTurn(ctx, h, lease) })
	return err
}

func (l *lossyStore) CommitStep(ctx context.Context, c memory.Commit) (int64, error) {
	return callThrough(l, "CommitStep", func() (int64, error) { return l.Store.CommitStep(ctx, c) })
}

func (l *lossyStore) FailTurn(ctx context.Context, f memory.Fail) (session.Turn, error) {
	return callThrough(l, "FailTurn", func() (session.Turn, error) { return l.Store.FailTurn(ctx, f) })
}

func (l *lossyStore) Record(ctx context.Context, h memory.Lease, step int, entries []execution.Entry) error {
	_, err := callThrough(l, "Record", func() (any, error) { return nil, l.Store.Record(ctx, h, step, entries) })
	return err
}

func (l *lossyStore) LoadJournal(ctx context.Context, h memory.Lease, step, after int) ([]execution.Entry, error) {
	return callThrough(l, "LoadJournal", func() ([]execution.Entry, error) { return l.Store.LoadJournal(ctx, h, step, after) })
}

func (l *lossyStore) UpdateSession(ctx context.Context, u memory.SessionUpdate) (session.Session, error) {
	return callThrough(l, "UpdateSession", func() (session.Session, error) { return l.Store.UpdateSession(ctx, u) })
}

func (l *lossyStore) GetSession(ctx context.Context, ref session.Ref) (session.Session, error) {
	return callThrough(l, "GetSession", func() (session.Session, error) { return l.Store.GetSession(ctx, ref) })
}

func (l *lossyStore) LoadHistory(ctx context.Context, ref session.Ref, after int64, limit int) ([]conversation.Message, error) {
	return callThrough(l, "LoadHistory", func() ([]conversation.Message, error) { return l.Store.LoadHistory(ctx, ref, after, limit) })
}

func (l *lossyStore) CompactSession(ctx context.Context, c memory.Compact) (conversation.Compaction, error) {
	return callThrough(l, "CompactSession", func() (conversation.Compaction, error) { return l.Store.CompactSession(ctx, c) })
}

func (l *lossyStore) PutArtifact(ctx context.Context, h memory.Lease, a memory.Artifact) (memory.Artifact, error) {
	return callThrough(l, "PutArtifact", func() (memory.Artifact, error) { return l.Store.PutArtifact(ctx, h, a) })
}

// lostMethods lists the methods whose calls are lost, and the methods whose responses are lost.
type lostMethods struct{ calls, answers []string }

func (l *lostMethods) lost(method string) (call, answer bool) {
	return slices.Contains(l.calls, method), slices.Contains(l.answers, method)
}

func (l *lostMethods) heal() { *l = lostMethods{} }

func openWithOutages(t *testing.T, c agent.Config, config local.Config, replies ...scripted.Reply) (*local.Session, *scripted.Model, *lostMethods,
	memory.Store,
) {
	t.Helper()
	a, model := scriptedAgent(t, c, replies...)
	wires, store := &lostMethods{}, inmem.New(inmem.Config{})
	config.Store = &lossyStore{store, wires.lost}
	s, err := local.Open(t.Context(), a, config)
	require.NoError(t, err)
	return s, model, wires, store
}

// runToError runs a turn that must fail with the mode, and returns its result.
func runToError(t *testing.T, s *local.Session, in local.Input, mode failure.Mode) event.TurnResult {
	t.Helper()
	all, err := runTurn(t, s, in)
	require.Equal(t, mode, failure.ModeOf(err), "%v", err)
	require.Equal(t, string(mode), resultOf(all).ErrorType)
	return resultOf(all)
}

// If the answer cannot be stored, the turn fails. Its messages are stored before the next turn, once the store is
// back.
// Req: LP-17
func TestSession_OutageAtTheCommitFailsTheTurn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, next := range []func(*local.Session) error{
			func(s *local.Session) error { return s.Save(t.Context()) },
			func(s *local.Session) error { return s.Pause(t.Context()) },
			func(s *local.Session) error {
				_, err := s.Execute(t.Context(), local.Input{Text: "b"}, nil)
				return err
			},
			func(s *local.Session) error { return s.Close(t.Context()) },
		} {
			s, _, wires, store := openWithOutages(t, agent.Config{}, local.Config{}, scripted.Say("1"), scripted.Say("2"))
			*wires = lostMethods{calls: []string{"CommitStep", "FailTurn"}}
			began := time.Now()
			runToError(t, s, local.Input{Text: "a"}, failure.SystemNetwork)
			require.Less(t, time.Since(began), local.DefaultLease)
			require.Equal(t, session.Failed, s.State())
			require.Error(t, s.Save(t.Context()))
			require.Error(t, s.Close(t.Context()), "it stays open until the turn is closed")
			wires.heal()
			require.NoError(t, next(s))
			said, info := storedMessages(t, store, s)
			require.Equal(t, []string{"user: a", "ai: 1 (partial)"}, said[:2])
			require.Equal(t, info.Size.Messages, s.Info().Size.Messages)
			require.Equal(t, info.Turns, s.Info().Turns)
			require.NotEqual(t, session.Busy, info.State)
		}
	})
}

// If the store fails while it closes a failed turn, what the agent said is there, and the turn is closed when it is back.
func TestSession_OutageBeforeAFailedTurnIsClosedLosesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := agent.Config{Tools: []tool.Tool{lookup(t)}}
		broken := scripted.Fail(failure.New(failure.ResourceAPI, "test", "the model is down"))
		s, _, wires, store := openWithOutages(t, c, local.Config{}, lookupReply("x"), lookupReply("y"), broken)
		*wires = lostMethods{calls: []string{"FailTurn"}}
		runToError(t, s, local.Input{Text: "a"}, failure.ResourceAPI)
		want := []string{"user: a", "ai: → lookup (partial)", "tool: found x (partial)", "ai: → lookup (partial)", "tool: found y (partial)"}
		said, info := storedMessages(t, store, s)
		require.Equal(t, want, said)
		require.Equal(t, session.Busy, info.State)
		wires.heal()
		require.NoError(t, s.Save(t.Context()))
		said, info = storedMessages(t, store, s)
		require.Equal(t, want, said)
		require.Equal(t, session.Failed, info.State)
		require.Equal(t, info.Size.Messages, s.Info().Size.Messages)
	})
}

// A process resumes its own open turn at once, without waiting for the lease, and continues with the journal.
// Req: LP-8, LP-31
func TestSession_ResumesItsOwnTurn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		calls := 0
		counts := hook.BeforeEachTool(func(_ context.Context, c *hook.Call) error {
			if !c.Replayed {
				calls++
			}
			return nil
		})
		c := agent.Config{Handlers: []hook.Handler{counts}}
		c.Tools = append(c.Tools, lookup(t))
		s, model, wires, store := openWithOutages(t, c, local.Config{}, lookupReply("x"), scripted.Say("1"), scripted.Say("1"))
		*wires = lostMethods{calls: []string{"CommitStep", "FailTurn"}}
		runToError(t, s, local.Input{Text: "a"}, failure.SystemNetwork)
		wires.heal()
		began := time.Now()
		all, err := runTurn(t, s, local.Input{Continue: true})
		require.NoError(t, err)
		require.Zero(t, time.Since(began))
		require.Equal(t, 1, resultOf(all).Turn)
		require.Equal(t, 1, calls)
		require.Len(t, model.Requests(), 3)
		said, info := storedMessages(t, store, s)
		require.Equal(t, []string{"user: a", "ai: → lookup", "tool: found x", "ai: 1"}, said)
		require.Equal(t, 1, info.Turns)
	})
}

// The response to BeginTurn is lost, so it is unknown whether the turn began. The next turn resolves that.
func TestSession_ResolvesABeginInDoubt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for name, wires := range map[string]lostMethods{"it began": {answers: []string{"BeginTurn"}}, "it did not": {calls: []string{"BeginTurn"}}} {
			for _, next := range []local.Input{{Continue: true}, {Text: "b"}} {
				s, _, now, store := openWithOutages(t, agent.Config{}, local.Config{}, scripted.Say("1"), scripted.Say("2"))
				*now = wires
				runToError(t, s, local.Input{Text: "a"}, failure.SystemNetwork)
				require.Equal(t, session.Ready, s.State(), "nothing ran")
				now.heal()
				_, err := runTurn(t, s, next)
				require.NoError(t, err, name)
				said, info := storedMessages(t, store, s)
				require.Equal(t, session.Ready, info.State)
				require.Equal(t, "ai: 1", said[len(said)-1])
				require.Equal(t, info.Size.Messages, s.Info().Size.Messages)
				require.Equal(t, info.Turns, s.Info().Turns)
			}
		}
	})
}

// The response to a takeover is lost, so it is unknown whether this process holds the turn. The next turn resolves
// that.
func TestSession_ResolvesATakeoverInDoubt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, next := range []local.Input{{Continue: true}, {Text: "b"}} {
			s, _, wires, store := openWithOutages(t, agent.Config{}, local.Config{}, scripted.Say("1"), scripted.Say("2"))
			*wires = lostMethods{calls: []string{"CommitStep", "FailTurn"}}
			runToError(t, s, local.Input{Text: "a"}, failure.SystemNetwork)
			*wires = lostMethods{answers: []string{"BeginTurn"}}
			runToError(t, s, local.Input{Continue: true}, failure.SystemNetwork)
			wires.heal()
			began := time.Now()
			all, err := runTurn(t, s, next)
			require.NoError(t, err)
			require.Equal(t, "2", resultOf(all).Result.Text)
			require.Zero(t, time.Since(began))
			_, info := storedMessages(t, store, s)
			require.Equal(t, session.Ready, info.State)
		}
	})
}

// If the journal of a turn cannot be read at a takeover, the turn stays open.
func TestSession_UnreadableJournalLeavesTheTurnOpen(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, _, wires, store := openWithOutages(t, agent.Config{}, local.Config{}, scripted.Say("1"), scripted.Say("2"))
		*wires = lostMethods{calls: []string{"CommitStep", "FailTurn"}}
		runToError(t, s, local.Input{Text: "a"}, failure.SystemNetwork)
		*wires = lostMethods{calls: []string{"LoadJournal"}}
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		_, err := runTurnUnder(ctx, t, s, local.Input{Continue: true})
		require.Error(t, err)
		wires.heal()
		ask(t, s, "b")
		said, _ := storedMessages(t, store, s)
		require.Equal(t, []string{"user: a", "user: b", "ai: 2"}, said)
	})
}

// A failed compaction is only a warning. The answer is kept.
// Req: LP-21
func TestSession_FailedCompactionIsAWarning(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, _, wires, store := openWithOutages(t, agent.Config{}, local.Config{MaxMessages: 2, AutoCompact: true}, scripted.Say("1"), scripted.Say("2"),
			scripted.Say("3"))
		ask(t, s, "a")
		*wires = lostMethods{calls: []string{"CompactSession"}}
		all, err := runTurn(t, s, local.Input{Text: "b"})
		require.NoError(t, err)
		require.Equal(t, []string{local.ReasonNotCompacted}, warningReasons(all))
		require.Equal(t, session.Ready, s.State())
		wires.heal()
		ask(t, s, "c")
		said, _ := storedMessages(t, store, s)
		require.Equal(t, []string{"summary", "ai: 3"}, said)
	})
}

// Turns that could not be saved are saved by a later Save, and only once.
// Req: LP-12, LP-23
func TestSession_RetriesASaveAfterAnOutage(t *testing.T) {
	for _, method := range []string{"BeginTurn", "CommitStep", "FailTurn", "UpdateSession", "GetSession", "PutArtifact"} {
		for _, answers := range []bool{false, true} {
			t.Run(method, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					down := failure.New(failure.ResourceAPI, "test", "down")
					s, _, wires, store := openWithOutages(t, agent.Config{Handlers: []hook.Handler{artifactSavingHandler()}}, local.Config{NoAutoSave: true},
						scripted.Say("1"), scripted.Fail(down), scripted.Say("3"))
					ask(t, s, "a")
					runToError(t, s, local.Input{Text: "b"}, failure.ResourceAPI)
					ask(t, s, "c")
					if answers {
						wires.answers = []string{method}
					} else {
						wires.calls = []string{method}
					}
					if method == "PutArtifact" { // the lease shows that the store does not respond
						wires.calls = append(wires.calls, "RenewTurn")
					}
					require.Equal(t, failure.SystemNetwork, failure.ModeOf(s.Save(t.Context())))
					wires.heal()
					require.NoError(t, s.Save(t.Context()))
					said, info := storedMessages(t, store, s)
					require.Equal(t, []string{"user: a", "ai: 1", "user: b", "user: c", "ai: 3"}, said)
					require.Equal(t, 3, info.Turns)
					require.Equal(t, info, copyTimes(s.Info(), info))
					artifacts, err := s.Artifacts(t.Context())
					require.NoError(t, err)
					require.Len(t, artifacts, 3)
				})
			})
		}
	}
}
