package redisstore

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/troupe-dev/troupe/internal/pendingcall"
	"github.com/troupe-dev/troupe/pkg/conversation"
	"github.com/troupe-dev/troupe/pkg/execution"
	"github.com/troupe-dev/troupe/pkg/failure"
	"github.com/troupe-dev/troupe/pkg/memory"
	"github.com/troupe-dev/troupe/pkg/session"
	"github.com/troupe-dev/troupe/services/memory/internal/redisstore/db"
	"github.com/troupe-dev/troupe/services/memory/internal/redisstore/journal"
	"github.com/troupe-dev/troupe/services/memory/internal/redisstore/turns"
	"github.com/troupe-dev/troupe/test/redistest"
)

var pendingJournal = []execution.Entry{
	{Number: 1, Phase: execution.Done, Reply: conversation.Assistant("echo", "I will mail it")},
	{Number: 2, Phase: execution.Intent, Tool: "send_mail", Effect: execution.AtMostOnce, Digest: "d"},
}

// commitWithPendingCall commits a step with a pending call.
func commitWithPendingCall(t *testing.T, s *Store, b memory.Begin, turn session.Turn, step int) {
	t.Helper()
	c := newCommit(b, turn)
	c.Outcome, c.Result.Step, c.Result.InputRequired = session.OutcomeInputRequired, step, true
	c.Result.Pending = []execution.Pending{{ID: pendingcall.ID(1, step, 3), Tool: "send_mail", Arguments: "{}", Needs: execution.NeedApproval}}
	_, err := s.CommitStep(t.Context(), c)
	require.NoError(t, err)
}

// createPendingTurn creates a session with a turn t1. Its first step is finished, and its second step has a
// pending call.
func createPendingTurn(t *testing.T, s *Store, id string) memory.Begin {
	t.Helper()
	b := newBegin(id, "t1")
	begun, err := s.BeginTurn(t.Context(), b)
	require.NoError(t, err)
	c := newCommit(b, begun.Turn)
	c.Outcome = session.OutcomeOpen
	begun.Turn.Sequence, err = s.CommitStep(t.Context(), c)
	require.NoError(t, err)
	h := memory.Lease{Ref: b.Ref, TurnID: b.TurnID, Epoch: begun.Turn.Epoch}
	require.NoError(t, s.Record(t.Context(), h, 2, pendingJournal))
	commitWithPendingCall(t, s, b, begun.Turn, 2)
	return b
}

// beginWithAnswers changes the request b into one that continues b's turn with answers.
func beginWithAnswers(b memory.Begin, turnID string) memory.Begin {
	b.Predecessor.Continues, b.TurnID, b.Message = b.TurnID, turnID, conversation.Message{}
	b.Predecessor.Answers = []execution.Answer{{ID: "2-3", Verdict: execution.Approve}}
	return b
}

func journalKeys(t *testing.T, s *Store, ref session.Ref) []string {
	t.Helper()
	found := []string{}
	for _, k := range sessionKeys(t, s, ref) {
		if strings.Contains(k, ":jrnl:") {
			found = append(found, k)
		}
	}
	return found
}

// The journal of a step with a pending call is kept as long as its turn, and then while the continuing turn is
// open. No other key contains the journal.
func TestStore_KeepsTheJournalOfAPendingCall(t *testing.T) {
	t.Parallel()
	s := openStore(t, "redis://"+redistest.Start(t))
	for name, end := range map[string]func(t *testing.T, b memory.Begin, turn session.Turn){
		"commit": func(t *testing.T, b memory.Begin, turn session.Turn) {
			c := newCommit(b, turn)
			c.Result.Step = 2
			_, err := s.CommitStep(t.Context(), c)
			require.NoError(t, err)
		},
		"fail": func(t *testing.T, b memory.Begin, turn session.Turn) {
			_, err := s.FailTurn(t.Context(), memory.Fail{
				Ref: b.Ref, TurnID: b.TurnID, Epoch: turn.Epoch, Outcome: session.OutcomeFailed, Failure: failure.New(failure.NoWorker, "test", "no worker"),
			})
			require.NoError(t, err)
			kept := db.Key(b.Ref, db.JournalName("t2", 2)) // kept for a turn that resumes t2
			require.InDelta(t, journal.Retention, s.db.PTTL(t.Context(), kept).Val(), float64(time.Minute))
			require.NoError(t, errorOf(s.DeleteSession(t.Context(), b.Ref)))
		},
		"evict": func(t *testing.T, b memory.Begin, turn session.Turn) {
			require.NoError(t, s.ReleaseTurn(t.Context(), memory.Lease{Ref: b.Ref, TurnID: b.TurnID, Epoch: turn.Epoch}))
			_, err := s.BeginTurn(t.Context(), newBegin(b.Ref.Session, "t3"))
			require.NoError(t, err)
		},
		"wait": func(t *testing.T, b memory.Begin, turn session.Turn) {
			commitWithPendingCall(t, s, b, turn, 2)
			kept := db.Key(b.Ref, db.JournalName("t2", 2))
			require.Equal(t, []string{kept}, journalKeys(t, s, b.Ref))
			require.InDelta(t, turns.Retention, s.db.PTTL(t.Context(), kept).Val(), float64(time.Minute))
			_, err := s.BeginTurn(t.Context(), newBegin(b.Ref.Session, "t3"))
			require.NoError(t, err)
		},
	} {
		t.Run(name, func(t *testing.T) {
			b := createPendingTurn(t, s, name)
			kept, turn := db.Key(b.Ref, db.JournalName("t1", 2)), db.Key(b.Ref, "turn:t1")
			require.Equal(t, []string{kept}, journalKeys(t, s, b.Ref))
			require.InDelta(t, s.db.PExpireTime(t.Context(), turn).Val(), s.db.PExpireTime(t.Context(), kept).Val(), float64(time.Second),
				"each PEXPIRE of a script looks at the clock")

			b = beginWithAnswers(b, "t2")
			begun, err := s.BeginTurn(t.Context(), b)
			require.NoError(t, err)
			taken := db.Key(b.Ref, db.JournalName("t2", 2))
			require.Equal(t, []string{taken}, journalKeys(t, s, b.Ref))
			forever := time.Duration(-1)
			require.Equal(t, forever, s.db.PTTL(t.Context(), taken).Val())
			h := memory.Lease{Ref: b.Ref, TurnID: b.TurnID, Epoch: begun.Turn.Epoch}
			require.NoError(t, s.Record(t.Context(), h, 2, []execution.Entry{{Number: 2, Phase: execution.Done, Tool: "send_mail", Digest: "d", Text: "sent"}}))
			require.Equal(t, forever, s.db.PTTL(t.Context(), taken).Val())
			end(t, b, begun.Turn)
			require.Empty(t, journalKeys(t, s, b.Ref))
		})
	}
}

// The journals of all branches whose calls wait are kept, as the journal of a single step is.
func TestStore_KeepsTheJournalsOfPendingBranches(t *testing.T) {
	t.Parallel()
	server := miniredis.RunT(t)
	s := openStore(t, "redis://"+server.Addr())
	suspend := func(t *testing.T, b memory.Begin, epoch int64) {
		t.Helper()
		f := memory.Fail{Ref: b.Ref, TurnID: b.TurnID, Epoch: epoch, Outcome: session.OutcomeInputRequired}
		for step := 2; step <= 4; step += 2 {
			f.Results = append(f.Results, execution.Result{Step: step, Agent: "echo", InputRequired: true, Pending: []execution.Pending{
				{ID: pendingcall.ID(1, step, 3), Tool: "send_mail", Arguments: "{}", Needs: execution.NeedApproval},
			}})
		}
		_, err := s.FailTurn(t.Context(), f)
		require.NoError(t, err)
	}
	for name, end := range map[string]func(t *testing.T, b memory.Begin, epoch int64){
		"cancel": func(t *testing.T, b memory.Begin, epoch int64) {
			_, err := s.FailTurn(t.Context(), memory.Fail{
				Ref: b.Ref, TurnID: b.TurnID, Epoch: epoch, Outcome: session.OutcomeCancelled, Failure: failure.New(failure.UserCancelled, "test", "no"),
			})
			require.NoError(t, err)
		},
		"evict": func(t *testing.T, b memory.Begin, epoch int64) {
			require.NoError(t, s.ReleaseTurn(t.Context(), memory.Lease{Ref: b.Ref, TurnID: b.TurnID, Epoch: epoch}))
			_, err := s.BeginTurn(t.Context(), newBegin(b.Ref.Session, "t3"))
			require.NoError(t, err)
		},
		"wait and abandon": func(t *testing.T, b memory.Begin, epoch int64) {
			suspend(t, b, epoch)
			_, err := s.BeginTurn(t.Context(), newBegin(b.Ref.Session, "t3"))
			require.NoError(t, err)
		},
		"wait and clear": func(t *testing.T, b memory.Begin, epoch int64) {
			suspend(t, b, epoch)
			require.NoError(t, s.ClearSession(t.Context(), b.Ref))
		},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBegin(strings.ReplaceAll(name, " ", "-"), "t1")
			begun, err := s.BeginTurn(t.Context(), b)
			require.NoError(t, err)
			for step := 2; step <= 4; step += 2 {
				h := memory.Lease{Ref: b.Ref, TurnID: b.TurnID, Epoch: begun.Turn.Epoch}
				require.NoError(t, s.Record(t.Context(), h, step, pendingJournal))
			}
			suspend(t, b, begun.Turn.Epoch)
			for _, key := range journalKeys(t, s, b.Ref) {
				require.InDelta(t, turns.Retention, s.db.PTTL(t.Context(), key).Val(), float64(time.Minute))
			}
			b = beginWithAnswers(b, "t2")
			begun, err = s.BeginTurn(t.Context(), b)
			require.NoError(t, err)
			require.ElementsMatch(t, []string{db.Key(b.Ref, db.JournalName("t2", 2)), db.Key(b.Ref, db.JournalName("t2", 4))}, journalKeys(t, s, b.Ref))
			for _, key := range journalKeys(t, s, b.Ref) {
				require.Equal(t, time.Duration(-1), s.db.PTTL(t.Context(), key).Val(), "it does not expire while the turn is open")
			}
			end(t, b, begun.Turn.Epoch)
			require.Empty(t, journalKeys(t, s, b.Ref))
		})
	}

	// Answers are rejected if the journal of one branch was lost.
	b := newBegin("lost", "t1")
	begun, err := s.BeginTurn(t.Context(), b)
	require.NoError(t, err)
	for step := 2; step <= 4; step += 2 {
		require.NoError(t, s.Record(t.Context(), memory.Lease{Ref: b.Ref, TurnID: b.TurnID, Epoch: begun.Turn.Epoch}, step, pendingJournal))
	}
	suspend(t, b, begun.Turn.Epoch)
	server.Del(db.Key(b.Ref, db.JournalName("t1", 4)))
	_, err = s.BeginTurn(t.Context(), beginWithAnswers(b, "t2"))
	require.Equal(t, failure.TurnNotOpen, failure.ModeOf(err), "%v", err)
	require.ErrorContains(t, err, "waited too long")
}

func TestStore_DeletesPendingCallsWithTheirSession(t *testing.T) {
	t.Parallel()
	s := openStore(t, "redis://"+redistest.Start(t))
	b := createPendingTurn(t, s, "cleared")
	require.NoError(t, s.ClearSession(t.Context(), b.Ref))
	require.Empty(t, journalKeys(t, s, b.Ref))
	require.False(t, s.db.HExists(t.Context(), db.Key(b.Ref, "meta"), "waiting").Val())

	b = createPendingTurn(t, s, "left")
	_, err := s.BeginTurn(t.Context(), newBegin("left", "t2"))
	require.NoError(t, err)
	require.Empty(t, journalKeys(t, s, b.Ref))
	require.False(t, s.db.HExists(t.Context(), db.Key(b.Ref, "meta"), "waiting").Val())

	for name, also := range map[string]func(memory.Begin){
		"waiting": func(memory.Begin) {},
		"answered": func(b memory.Begin) {
			_, err := s.BeginTurn(t.Context(), beginWithAnswers(b, "t2"))
			require.NoError(t, err)
		},
	} {
		b := createPendingTurn(t, s, name)
		also(b)
		require.NoError(t, errorOf(s.DeleteSession(t.Context(), b.Ref)))
		require.Equal(t, []string{db.Key(b.Ref, "meta")}, sessionKeys(t, s, b.Ref), name)
	}
}

// Answers that arrive after turns.Retention are rejected with a clear error, so that no turn repeats work.
func TestStore_RejectsAnswersAfterRetention(t *testing.T) {
	t.Parallel()
	server := miniredis.RunT(t)
	s := openStore(t, "redis://"+server.Addr())
	b := createPendingTurn(t, s, "s1")
	server.FastForward(turns.Retention - time.Second)
	found, err := s.GetSession(t.Context(), b.Ref)
	require.NoError(t, err)
	require.Len(t, found.Pending, 1)
	server.FastForward(2 * time.Second)
	found, err = s.GetSession(t.Context(), b.Ref)
	require.NoError(t, err)
	require.Empty(t, found.WaitingTurn)
	require.Empty(t, found.Pending)
	for range 2 {
		_, err = s.BeginTurn(t.Context(), beginWithAnswers(b, "t2"))
		require.Equal(t, failure.TurnNotOpen, failure.ModeOf(err), "%v", err)
		require.ErrorContains(t, err, "waited too long")
	}
	_, err = s.BeginTurn(t.Context(), newBegin("s1", "t3"))
	require.NoError(t, err)

	// Answers are also rejected if only the journal has expired.
	b = createPendingTurn(t, s, "s2")
	server.Del(db.Key(b.Ref, db.JournalName("t1", 2)))
	_, err = s.BeginTurn(t.Context(), beginWithAnswers(b, "t2"))
	require.Equal(t, failure.TurnNotOpen, failure.ModeOf(err), "%v", err)
	require.ErrorContains(t, err, "waited too long")
	found, err = s.GetSession(t.Context(), b.Ref)
	require.NoError(t, err)
	require.Equal(t, 1, found.Turns)

	// Once the answers are accepted, the turn can be taken over at any later time.
	b = beginWithAnswers(createPendingTurn(t, s, "s3"), "t2")
	_, err = s.BeginTurn(t.Context(), b)
	require.NoError(t, err)
	server.FastForward(10 * turns.Retention)
	server.SetTime(time.Now().Add(10 * turns.Retention))
	b.TraceID = strings.Repeat("b", 32)
	begun, err := s.BeginTurn(t.Context(), b)
	require.NoError(t, err)
	require.Equal(t, 3, begun.Turn.Attempt)
	entries, err := s.LoadJournal(t.Context(), memory.Lease{Ref: b.Ref, TurnID: "t2", Epoch: begun.Turn.Epoch}, 2, 0)
	require.NoError(t, err)
	require.Len(t, entries, len(pendingJournal))
}

// Pending calls may appear or disappear between two runs of the script of BeginTurn. The result is the same as if
// the calls had been made one after the other.
func TestStore_BeginTurnHandlesConcurrentPendingCalls(t *testing.T) {
	t.Parallel()
	addr := redistest.Start(t)
	first := openStore(t, "redis://"+addr)
	for name, meeting := range map[string]struct {
		before func(t *testing.T, b memory.Begin) // runs before BeginTurn is repeated
		begin  func(memory.Begin) memory.Begin
		want   failure.Mode
	}{
		"an answer meets an answer": {func(t *testing.T, b memory.Begin) {
			_, err := first.BeginTurn(t.Context(), beginWithAnswers(b, "t2"))
			require.NoError(t, err)
		}, func(b memory.Begin) memory.Begin { return beginWithAnswers(b, "t3") }, failure.SessionBusy},
		"an answer meets a message": {func(t *testing.T, b memory.Begin) {
			m := newBegin(b.Ref.Session, "t2")
			begun, err := first.BeginTurn(t.Context(), m)
			require.NoError(t, err)
			_, err = first.CommitStep(t.Context(), newCommit(m, begun.Turn))
			require.NoError(t, err)
		}, func(b memory.Begin) memory.Begin { return beginWithAnswers(b, "t3") }, failure.TurnNotOpen},
		"a message meets other calls": {func(t *testing.T, b memory.Begin) {
			r := beginWithAnswers(b, "t2")
			begun, err := first.BeginTurn(t.Context(), r)
			require.NoError(t, err)
			commitWithPendingCall(t, first, r, begun.Turn, 2)
		}, func(b memory.Begin) memory.Begin { return newBegin(b.Ref.Session, "t3") }, ""},
	} {
		t.Run(name, func(t *testing.T) {
			s := openStore(t, "redis://"+addr)
			require.NoError(t, registeredScript("begin").Load(t.Context(), s.db).Err()) // otherwise the script takes two round trips
			b := createPendingTurn(t, s, strings.ReplaceAll(name, " ", "-"))
			trips := 0
			s.db.AddHook(beforeRoundTripHook(func(cmds ...redis.Cmder) error {
				if !runsScript(registeredScript("begin"), cmds) {
					return nil
				}
				if trips++; trips == 2 {
					meeting.before(t, b)
				}
				return nil
			}))
			_, err := s.BeginTurn(t.Context(), meeting.begin(b))
			require.Equal(t, meeting.want, failure.ModeOf(err), "%v", err)
			require.GreaterOrEqual(t, trips, 2)
			var left []string // the journal of the continuing turn, if any
			if meeting.want == failure.SessionBusy {
				left = append(left, db.Key(b.Ref, db.JournalName("t2", 2)))
			}
			require.ElementsMatch(t, left, journalKeys(t, s, b.Ref))
		})
	}
}

// A clear that began while a turn was open leaves nothing behind, even if the turn has ended with pending calls in
// the meantime. The epoch alone does not show that, because it is the same.
func TestStore_ClearDuringAPendingCall(t *testing.T) {
	t.Parallel()
	s := openStore(t, "redis://"+redistest.Start(t))
	b := beginWithAnswers(createPendingTurn(t, s, "s1"), "t2")
	begun, err := s.BeginTurn(t.Context(), b)
	require.NoError(t, err)
	stopped := false
	s.db.AddHook(beforeRoundTripHook(func(cmds ...redis.Cmder) error {
		if !stopped && runsScript(registeredScript("clear"), cmds) {
			stopped = true
			commitWithPendingCall(t, s, b, begun.Turn, 2)
		}
		return nil
	}))
	require.NoError(t, s.ClearSession(t.Context(), b.Ref))
	require.True(t, stopped)
	require.Empty(t, journalKeys(t, s, b.Ref))
	found, err := s.GetSession(t.Context(), b.Ref)
	require.NoError(t, err)
	require.Empty(t, found.WaitingTurn)
}

// Completing an interrupted deletion also removes the pending calls.
func TestStore_InterruptedDeletionRemovesPendingCalls(t *testing.T) {
	t.Parallel()
	s := openStore(t, "redis://"+redistest.Start(t))
	b := createPendingTurn(t, s, "s1")
	for i := range 5 {
		b = beginWithAnswers(b, fmt.Sprintf("n%d", i))
		begun, err := s.BeginTurn(t.Context(), b)
		require.NoError(t, err)
		commitWithPendingCall(t, s, b, begun.Turn, 2)
	}
	_, err := s.db.RunScript(t.Context(), "test", b.Ref, registeredScript("delete"), deleteKeys(b.Ref), 0)
	require.NoError(t, err)
	require.NotEmpty(t, journalKeys(t, s, b.Ref))
	_, _, err = s.ListSessions(t.Context(), memory.SessionFilter{Tenant: "default", Limit: 10})
	require.NoError(t, err)
	require.Equal(t, []string{db.Key(b.Ref, "meta")}, sessionKeys(t, s, b.Ref))
}
