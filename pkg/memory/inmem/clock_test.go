package inmem

import (
	"crypto/sha256"
	"encoding/hex"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/troupe-dev/troupe/pkg/conversation"
	"github.com/troupe-dev/troupe/pkg/execution"
	"github.com/troupe-dev/troupe/pkg/failure"
	"github.com/troupe-dev/troupe/pkg/memory"
	"github.com/troupe-dev/troupe/pkg/memory/inmem/internal/artifacts"
	"github.com/troupe-dev/troupe/pkg/session"
)

var ref = session.Ref{Tenant: "default", Session: "s"}

// newStoreWithClock returns a store and the function pass, which advances the clock of the store.
func newStoreWithClock(cfg Config) (store *Store, pass func(time.Duration)) {
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	cfg.Clock = func() time.Time { return now }
	return New(cfg), func(d time.Duration) { now = now.Add(d) }
}

func newBeginRequest(turnID, trace string) memory.Begin {
	return memory.Begin{
		Ref: ref, TurnID: turnID, TraceID: trace, Fingerprint: turnID, Message: conversation.User("hello"),
		LeaseTTL: time.Minute, Window: 10,
	}
}

func beginTurn(t *testing.T, s *Store, b memory.Begin) memory.BeginResult {
	t.Helper()
	begun, err := s.BeginTurn(t.Context(), b)
	require.NoError(t, err)
	return begun
}

func TestStore_LeaseExpiresByItsClock(t *testing.T) {
	s, pass := newStoreWithClock(Config{})
	first := beginTurn(t, s, newBeginRequest("t1", "one"))
	pass(time.Minute - time.Millisecond)
	found := beginTurn(t, s, newBeginRequest("t1", "two"))
	require.Equal(t, memory.StatusOpen, found.Status)
	require.Equal(t, time.Millisecond, found.LeaseLeft)
	_, err := s.BeginTurn(t.Context(), newBeginRequest("t2", "two"))
	require.True(t, failure.Is(err, failure.SessionBusy), "%v", err)

	h := memory.Lease{Ref: ref, TurnID: "t1", Epoch: first.Turn.Epoch}
	require.NoError(t, s.RenewTurn(t.Context(), h, time.Minute))
	pass(time.Minute - time.Millisecond)
	require.Equal(t, memory.StatusOpen, beginTurn(t, s, newBeginRequest("t1", "two")).Status)
	pass(time.Millisecond)
	taken := beginTurn(t, s, newBeginRequest("t1", "two"))
	require.Equal(t, memory.StatusBegun, taken.Status)
	require.Equal(t, 2, taken.Turn.Attempt)
	require.True(t, failure.Is(s.RenewTurn(t.Context(), h, time.Minute), failure.Fenced))
}

func TestStore_ForgetsTurnsAfterRetention(t *testing.T) {
	s, pass := newStoreWithClock(Config{})
	turn := beginTurn(t, s, newBeginRequest("t1", "one")).Turn
	_, err := s.CommitStep(t.Context(), memory.Commit{
		Ref: ref, TurnID: "t1", Epoch: turn.Epoch, Base: 1, Result: execution.Result{Step: 1, Agent: "echo"}, Outcome: session.OutcomeCompleted,
	})
	require.NoError(t, err)
	pass(memory.Retention - time.Millisecond)
	require.Equal(t, memory.StatusClosed, beginTurn(t, s, newBeginRequest("t1", "one")).Status)
	pass(time.Millisecond)
	again := beginTurn(t, s, newBeginRequest("t1", "one"))
	require.Equal(t, memory.StatusBegun, again.Status)
	require.Equal(t, 2, again.Turn.Number)
	pass(2 * memory.Retention)
	require.Equal(t, memory.StatusBegun, beginTurn(t, s, newBeginRequest("t1", "two")).Status, "an open turn is never forgotten")
}

func TestStore_ForgetsRecordingsAfterTheirRetention(t *testing.T) {
	s, pass := newStoreWithClock(Config{KeepJournals: time.Hour})
	turn := beginTurn(t, s, newBeginRequest("t1", "one")).Turn
	_, err := s.CommitStep(t.Context(), memory.Commit{
		Ref: ref, TurnID: "t1", Epoch: turn.Epoch, Base: 1, Result: execution.Result{Step: 1, Agent: "echo"}, Outcome: session.OutcomeCompleted,
		Journal: []execution.Entry{{Number: 1, Phase: execution.Done, Reply: conversation.Assistant("echo", "hi")}},
	})
	require.NoError(t, err)
	pass(time.Hour - time.Millisecond)
	entries, err := s.Recording(t.Context(), ref, "t1", 1, 0)
	require.NoError(t, err)
	require.Len(t, entries, 1)
	pass(time.Millisecond)
	entries, err = s.Recording(t.Context(), ref, "t1", 1, 0)
	require.NoError(t, err)
	require.Empty(t, entries)
}

// commitWithPendingCall runs a turn that ends with a pending call.
func commitWithPendingCall(t *testing.T, s *Store, turnID string) {
	t.Helper()
	turn := beginTurn(t, s, newBeginRequest(turnID, "one")).Turn
	_, err := s.CommitStep(t.Context(), memory.Commit{
		Ref: ref, TurnID: turnID, Epoch: turn.Epoch, Base: turn.Sequence, Outcome: session.OutcomeInputRequired,
		Result: execution.Result{Step: 1, Agent: "echo", Pending: []execution.Pending{{ID: "1-1-2", Tool: "send_mail"}}},
	})
	require.NoError(t, err)
}

func TestStore_ForgetsWaitingCallsAfterRetention(t *testing.T) {
	s, pass := newStoreWithClock(Config{})
	commitWithPendingCall(t, s, "t1")
	answering := newBeginRequest("t2", "two")
	answering.Predecessor.Continues, answering.Message = "t1", conversation.Message{}
	pass(memory.Retention - time.Millisecond)
	found, err := s.GetSession(t.Context(), ref)
	require.NoError(t, err)
	require.Len(t, found.Pending, 1)
	pass(time.Millisecond)
	found, err = s.GetSession(t.Context(), ref)
	require.NoError(t, err)
	require.Empty(t, found.WaitingTurn)
	require.Empty(t, found.Pending)
	_, err = s.BeginTurn(t.Context(), answering)
	require.True(t, failure.Is(err, failure.TurnNotOpen), "%v", err)
	require.ErrorContains(t, err, "waited too long")

	// The data are kept while the turn that continued the pending call can be taken over.
	commitWithPendingCall(t, s, "t3")
	answering.TurnID, answering.Predecessor.Continues = "t4", "t3"
	beginTurn(t, s, answering)
	pass(2 * memory.Retention)
	answering.TraceID = "three"
	require.Equal(t, 3, beginTurn(t, s, answering).Turn.Attempt)
}

func TestStore_ForgetsDeletedSessionsAfterRetention(t *testing.T) {
	s, pass := newStoreWithClock(Config{})
	beginTurn(t, s, newBeginRequest("t1", "one"))
	require.NoError(t, deleteSession(t, s))
	pass(memory.Retention - time.Millisecond)
	require.NoError(t, deleteSession(t, s))
	_, err := s.BeginTurn(t.Context(), newBeginRequest("t1", "one"))
	require.True(t, failure.Is(err, failure.SessionDeleted), "%v", err)
	pass(time.Millisecond)
	require.True(t, failure.Is(deleteSession(t, s), failure.NotFound))
	require.Equal(t, 1, beginTurn(t, s, newBeginRequest("t1", "one")).Turn.Number)
}

func deleteSession(t *testing.T, s *Store) error {
	t.Helper()
	_, err := s.DeleteSession(t.Context(), ref)
	return err
}

func TestStore_DropsStagedContentAfterADay(t *testing.T) {
	s, pass := newStoreWithClock(Config{})
	turn := beginTurn(t, s, newBeginRequest("t1", "one")).Turn
	h := memory.Lease{Ref: ref, TurnID: "t1", Epoch: turn.Epoch}
	sum := sha256.Sum256([]byte("hello"))
	c := memory.Content{SHA256: hex.EncodeToString(sum[:]), Size: 5}
	stored := func() int64 {
		n, err := s.StageArtifact(t.Context(), h, c)
		require.NoError(t, err)
		return n
	}
	require.NoError(t, s.AppendArtifact(t.Context(), h, c, 0, []byte("hello")))
	pass(artifacts.StagingTime - time.Millisecond)
	require.EqualValues(t, 5, stored())
	pass(time.Millisecond)
	require.Zero(t, stored())
	require.NoError(t, s.AppendArtifact(t.Context(), h, c, 0, []byte("hello")))
	_, err := s.PutArtifact(t.Context(), h, memory.Artifact{Content: c, Name: "a"})
	require.NoError(t, err)
	pass(10 * artifacts.StagingTime)
	require.EqualValues(t, 5, stored(), "an artifact has it")
}

func TestStore_GenerationRaisesEpochs(t *testing.T) {
	s, _ := newStoreWithClock(Config{Generation: 2})
	require.EqualValues(t, 2<<32, beginTurn(t, s, newBeginRequest("t1", "one")).Turn.Epoch)
	b := newBeginRequest("t1", "one")
	b.LostEpoch = 2 << 32
	require.EqualValues(t, 2<<32+1, beginTurn(t, s, b).Turn.Epoch)
}
