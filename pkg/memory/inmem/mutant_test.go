package inmem

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/troupe-dev/troupe/pkg/conversation"
	"github.com/troupe-dev/troupe/pkg/execution"
	"github.com/troupe-dev/troupe/pkg/failure"
	"github.com/troupe-dev/troupe/pkg/memory"
	"github.com/troupe-dev/troupe/pkg/memory/memorytest"
	"github.com/troupe-dev/troupe/pkg/session"
)

// FirstDifference detects every mutant: a store that differs from inmem by a single fault.
func TestFirstDifference_FindsMutants(t *testing.T) {
	open := func() memory.Store {
		return New(Config{MaxMessages: memorytest.MaxMessages, MaxBytes: memorytest.MaxBytes})
	}
	for name, mutant := range map[string]memory.Store{
		"a lost epoch is ignored":                      mutantIgnoringLostEpoch{open()},
		"a lost epoch takes over each time":            mutantRepeatingLostEpoch{open()},
		"a release does nothing":                       mutantIgnoringRelease{open()},
		"a turn that continues adds a message":         mutantAddingMessage{open()},
		"a commit's state is dropped":                  mutantDroppingCommitState{open()},
		"a failed turn loses its partial message":      mutantDroppingPartialMessage{open()},
		"a repeated request changes state again":       mutantRepeatingStateUpdate{open()},
		"a stale epoch writes state":                   mutantSkippingStateFence{open()},
		"an entry is overwritten":                      mutantIgnoringNondeterminism{open()},
		"a window has a message too many":              mutantReturningLongWindow{open()},
		"a compaction keeps too little":                mutantKeepingTooFewMessages{open()},
		"a cleared session keeps its state":            mutantKeepingClearedState{open()},
		"a deleted artifact stays":                     mutantKeepingDeletedArtifact{open()},
		"a version is made for equal content":          mutantAddingEqualContent{open()},
		"answers are dropped":                          mutantDroppingAnswers{open()},
		"a turn that does not wait is continued":       mutantContinuingAnyTurn{open()},
		"a turn continues without the journal":         &mutantDroppingJournal{Store: open(), continuedTurns: map[string]bool{}},
		"waiting calls are not returned":               mutantHidingPendingCalls{open()},
		"a new turn continues the waiting one unasked": mutantContinuingUnasked{open()},
		"a user's artifact belongs to the session":     mutantMovingUserArtifact{open()},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, err := memorytest.FirstDifference(t.Context(), open(), mutant, 20_000, 1)
			require.Error(t, err)
		})
	}
}

type mutantIgnoringLostEpoch struct{ memory.Store }

func (m mutantIgnoringLostEpoch) BeginTurn(ctx context.Context, b memory.Begin) (memory.BeginResult, error) {
	b.LostEpoch = 0
	return m.Store.BeginTurn(ctx, b)
}

type mutantRepeatingLostEpoch struct{ memory.Store }

func (m mutantRepeatingLostEpoch) BeginTurn(ctx context.Context, b memory.Begin) (memory.BeginResult, error) {
	begun, err := m.Store.BeginTurn(ctx, b)
	if b.LostEpoch > 0 && begun.Status == memory.StatusBegun && begun.Turn.Epoch > b.LostEpoch {
		b.LostEpoch = begun.Turn.Epoch
		return m.Store.BeginTurn(ctx, b)
	}
	return begun, err
}

type mutantAddingMessage struct{ memory.Store }

func (m mutantAddingMessage) BeginTurn(ctx context.Context, b memory.Begin) (memory.BeginResult, error) {
	b.Message.Role = conversation.RoleUser
	return m.Store.BeginTurn(ctx, b)
}

type mutantIgnoringRelease struct{ memory.Store }

func (m mutantIgnoringRelease) ReleaseTurn(ctx context.Context, h memory.Lease) error {
	return m.RenewTurn(ctx, h, memory.MaxLeaseTTL)
}

type mutantDroppingCommitState struct{ memory.Store }

func (s mutantDroppingCommitState) CommitStep(ctx context.Context, c memory.Commit) (int64, error) {
	c.State = nil
	return s.Store.CommitStep(ctx, c)
}

type mutantMovingUserArtifact struct{ memory.Store }

func (m mutantMovingUserArtifact) PutArtifact(ctx context.Context, h memory.Lease, a memory.Artifact) (memory.Artifact, error) {
	name := a.Name
	a.Name = strings.TrimPrefix(a.Name, "user:")
	put, err := m.Store.PutArtifact(ctx, h, a)
	put.Name = name
	return put, err
}

type mutantDroppingPartialMessage struct{ memory.Store }

func (m mutantDroppingPartialMessage) Record(ctx context.Context, h memory.Lease, step int, entries []execution.Entry) error {
	withoutReplies := make([]execution.Entry, len(entries))
	for i, e := range entries {
		e.Reply = conversation.Message{}
		withoutReplies[i] = e
	}
	return m.Store.Record(ctx, h, step, withoutReplies)
}

type mutantRepeatingStateUpdate struct{ memory.Store }

func (s mutantRepeatingStateUpdate) UpdateState(ctx context.Context, u memory.StateUpdate) (int64, error) {
	u.RequestID = rand.Text()
	return s.Store.UpdateState(ctx, u)
}

type mutantSkippingStateFence struct{ memory.Store }

func (s mutantSkippingStateFence) UpdateState(ctx context.Context, u memory.StateUpdate) (int64, error) {
	u.TurnID = ""
	return s.Store.UpdateState(ctx, u)
}

type mutantIgnoringNondeterminism struct{ memory.Store }

func (m mutantIgnoringNondeterminism) Record(ctx context.Context, h memory.Lease, step int, entries []execution.Entry) error {
	err := m.Store.Record(ctx, h, step, entries)
	if failure.Is(err, failure.Nondeterminism) {
		return nil
	}
	return err
}

type mutantReturningLongWindow struct{ memory.Store }

func (m mutantReturningLongWindow) BeginTurn(ctx context.Context, b memory.Begin) (memory.BeginResult, error) {
	b.Window++
	return m.Store.BeginTurn(ctx, b)
}

type mutantKeepingTooFewMessages struct{ memory.Store }

func (m mutantKeepingTooFewMessages) CompactSession(ctx context.Context, c memory.Compact) (conversation.Compaction, error) {
	c.Keep = max(1, c.Keep-1)
	return m.Store.CompactSession(ctx, c)
}

type mutantKeepingClearedState struct{ memory.Store }

func (s mutantKeepingClearedState) ClearSession(ctx context.Context, ref session.Ref) error {
	was, err := s.GetState(ctx, ref)
	if err != nil {
		return err
	}
	if err := s.Store.ClearSession(ctx, ref); err != nil {
		return err
	}
	for key, value := range was.Values {
		if memory.ScopeOf(key) == memory.ScopeSession {
			was.Values = map[string]json.RawMessage{key: value}
			_, err = s.UpdateState(ctx, memory.StateUpdate{Ref: ref, RequestID: rand.Text(), Delta: was.Values})
			return err
		}
	}
	return nil
}

type mutantKeepingDeletedArtifact struct{ memory.Store }

func (m mutantKeepingDeletedArtifact) DeleteArtifact(ctx context.Context, h memory.Lease, _ string, _ int) error {
	return m.RenewTurn(ctx, h, time.Minute)
}

type mutantAddingEqualContent struct{ memory.Store }

func (m mutantAddingEqualContent) PutArtifact(ctx context.Context, h memory.Lease, a memory.Artifact) (memory.Artifact, error) {
	if latest, err := m.GetArtifact(ctx, h.Ref, a.Name, 0); err == nil && latest.Content == a.Content && a.Size > 0 {
		if err := m.DeleteArtifact(ctx, h, a.Name, latest.Version); err != nil {
			return memory.Artifact{}, err
		}
	}
	return m.Store.PutArtifact(ctx, h, a)
}

type mutantDroppingAnswers struct{ memory.Store }

func (m mutantDroppingAnswers) BeginTurn(ctx context.Context, b memory.Begin) (memory.BeginResult, error) {
	if b.Predecessor.Continues != "" {
		b.Predecessor.Answers = nil
	}
	return m.Store.BeginTurn(ctx, b)
}

type mutantContinuingAnyTurn struct{ memory.Store }

func (m mutantContinuingAnyTurn) BeginTurn(ctx context.Context, b memory.Begin) (memory.BeginResult, error) {
	begun, err := m.Store.BeginTurn(ctx, b)
	if b.Predecessor.Continues != "" && failure.Is(err, failure.TurnNotOpen) {
		b.Predecessor.Continues, b.Predecessor.Answers = "", nil
		return m.Store.BeginTurn(ctx, b)
	}
	return begun, err
}

type mutantDroppingJournal struct {
	memory.Store
	continuedTurns map[string]bool // turns that continued an earlier turn
}

func (m *mutantDroppingJournal) BeginTurn(ctx context.Context, b memory.Begin) (memory.BeginResult, error) {
	begun, err := m.Store.BeginTurn(ctx, b)
	if begun.Turn.Continues != "" {
		m.continuedTurns[b.Ref.Session+begun.Turn.ID] = true
	}
	return begun, err
}

func (m *mutantDroppingJournal) LoadJournal(ctx context.Context, h memory.Lease, step, after int) ([]execution.Entry, error) {
	entries, err := m.Store.LoadJournal(ctx, h, step, after)
	if m.continuedTurns[h.Ref.Session+h.TurnID] {
		entries = nil
	}
	return entries, err
}

type mutantHidingPendingCalls struct{ memory.Store }

func (m mutantHidingPendingCalls) GetSession(ctx context.Context, ref session.Ref) (session.Session, error) {
	found, err := m.Store.GetSession(ctx, ref)
	found.Pending = nil
	return found, err
}

type mutantContinuingUnasked struct{ memory.Store }

func (m mutantContinuingUnasked) BeginTurn(ctx context.Context, b memory.Begin) (memory.BeginResult, error) {
	if found, err := m.GetSession(ctx, b.Ref); err == nil && found.WaitingTurn != "" && len(b.UserMessages()) == 0 && !b.LookupOnly {
		b.Predecessor.Continues = found.WaitingTurn
	}
	return m.Store.BeginTurn(ctx, b)
}
