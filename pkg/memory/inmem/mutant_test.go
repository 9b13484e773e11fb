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

// TestFirstDifference_FindsMutants compares the store with stores that have one fault each.
func TestFirstDifference_FindsMutants(t *testing.T) {
	open := func() memory.Store {
		return New(Config{MaxMessages: memorytest.MaxMessages, MaxBytes: memorytest.MaxBytes})
	}
	for name, mutant := range map[string]memory.Store{
		"a lost epoch is ignored":                      lostEpochIgnored{open()},
		"a lost epoch takes over each time":            lostEpochRepeated{open()},
		"a release does nothing":                       releaseIgnored{open()},
		"a turn that continues adds a message":         messageAdded{open()},
		"a commit's state is dropped":                  commitStateDropped{open()},
		"a failed turn loses its partial message":      partialMessageDropped{open()},
		"a repeated request changes state again":       stateRepeated{open()},
		"a stale epoch writes state":                   stateUnfenced{open()},
		"an entry is overwritten":                      nondeterminismIgnored{open()},
		"a window has a message too many":              windowTooLong{open()},
		"a compaction keeps too little":                compactionTooShort{open()},
		"a cleared session keeps its state":            stateNotCleared{open()},
		"a deleted artifact stays":                     artifactNotDeleted{open()},
		"a version is made for equal content":          equalContentAdded{open()},
		"answers are dropped":                          answersDropped{open()},
		"a turn that does not wait is continued":       notWaitingContinued{open()},
		"a turn continues without the journal":         &journalDropped{Store: open(), gone: map[string]bool{}},
		"waiting calls are not returned":               pendingHidden{open()},
		"a new turn continues the waiting one unasked": continuedUnasked{open()},
		"a user's artifact belongs to the session":     userArtifactOfSession{open()},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, err := memorytest.FirstDifference(t.Context(), open(), mutant, 20_000, 1)
			require.Error(t, err)
		})
	}
}

type lostEpochIgnored struct{ memory.Store }

func (s lostEpochIgnored) BeginTurn(ctx context.Context, b memory.Begin) (memory.BeginResult, error) {
	b.LostEpoch = 0
	return s.Store.BeginTurn(ctx, b)
}

type lostEpochRepeated struct{ memory.Store }

func (s lostEpochRepeated) BeginTurn(ctx context.Context, b memory.Begin) (memory.BeginResult, error) {
	begun, err := s.Store.BeginTurn(ctx, b)
	if b.LostEpoch > 0 && begun.Status == memory.StatusBegun && begun.Turn.Epoch > b.LostEpoch {
		b.LostEpoch = begun.Turn.Epoch
		return s.Store.BeginTurn(ctx, b)
	}
	return begun, err
}

type messageAdded struct{ memory.Store }

func (s messageAdded) BeginTurn(ctx context.Context, b memory.Begin) (memory.BeginResult, error) {
	b.Message.Role = conversation.RoleUser
	return s.Store.BeginTurn(ctx, b)
}

type releaseIgnored struct{ memory.Store }

func (s releaseIgnored) ReleaseTurn(ctx context.Context, h memory.Lease) error {
	return s.RenewTurn(ctx, h, memory.MaxLeaseTTL)
}

type commitStateDropped struct{ memory.Store }

func (s commitStateDropped) CommitStep(ctx context.Context, c memory.Commit) (int64, error) {
	c.State = nil
	return s.Store.CommitStep(ctx, c)
}

type userArtifactOfSession struct{ memory.Store }

func (s userArtifactOfSession) PutArtifact(ctx context.Context, h memory.Lease, a memory.Artifact) (memory.Artifact, error) {
	name := a.Name
	a.Name = strings.TrimPrefix(a.Name, "user:")
	put, err := s.Store.PutArtifact(ctx, h, a)
	put.Name = name
	return put, err
}

type partialMessageDropped struct{ memory.Store }

func (s partialMessageDropped) Record(ctx context.Context, h memory.Lease, step int, entries []execution.Entry) error {
	withoutReplies := make([]execution.Entry, len(entries))
	for i, e := range entries {
		e.Reply = conversation.Message{}
		withoutReplies[i] = e
	}
	return s.Store.Record(ctx, h, step, withoutReplies)
}

type stateRepeated struct{ memory.Store }

func (s stateRepeated) UpdateState(ctx context.Context, u memory.StateUpdate) (int64, error) {
	u.RequestID = rand.Text()
	return s.Store.UpdateState(ctx, u)
}

type stateUnfenced struct{ memory.Store }

func (s stateUnfenced) UpdateState(ctx context.Context, u memory.StateUpdate) (int64, error) {
	u.TurnID = ""
	return s.Store.UpdateState(ctx, u)
}

type nondeterminismIgnored struct{ memory.Store }

func (s nondeterminismIgnored) Record(ctx context.Context, h memory.Lease, step int, entries []execution.Entry) error {
	err := s.Store.Record(ctx, h, step, entries)
	if failure.Is(err, failure.Nondeterminism) {
		return nil
	}
	return err
}

type windowTooLong struct{ memory.Store }

func (s windowTooLong) BeginTurn(ctx context.Context, b memory.Begin) (memory.BeginResult, error) {
	b.Window++
	return s.Store.BeginTurn(ctx, b)
}

type compactionTooShort struct{ memory.Store }

func (s compactionTooShort) CompactSession(ctx context.Context, c memory.Compact) (conversation.Compaction, error) {
	c.Keep = max(1, c.Keep-1)
	return s.Store.CompactSession(ctx, c)
}

type stateNotCleared struct{ memory.Store }

func (s stateNotCleared) ClearSession(ctx context.Context, ref session.Ref) error {
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

type artifactNotDeleted struct{ memory.Store }

func (s artifactNotDeleted) DeleteArtifact(ctx context.Context, h memory.Lease, _ string, _ int) error {
	return s.RenewTurn(ctx, h, time.Minute)
}

type equalContentAdded struct{ memory.Store }

func (s equalContentAdded) PutArtifact(ctx context.Context, h memory.Lease, a memory.Artifact) (memory.Artifact, error) {
	if latest, err := s.GetArtifact(ctx, h.Ref, a.Name, 0); err == nil && latest.Content == a.Content && a.Size > 0 {
		if err := s.DeleteArtifact(ctx, h, a.Name, latest.Version); err != nil {
			return memory.Artifact{}, err
		}
	}
	return s.Store.PutArtifact(ctx, h, a)
}

type answersDropped struct{ memory.Store }

func (s answersDropped) BeginTurn(ctx context.Context, b memory.Begin) (memory.BeginResult, error) {
	if b.From.Continues != "" {
		b.From.Answers = nil
	}
	return s.Store.BeginTurn(ctx, b)
}

type notWaitingContinued struct{ memory.Store }

func (s notWaitingContinued) BeginTurn(ctx context.Context, b memory.Begin) (memory.BeginResult, error) {
	begun, err := s.Store.BeginTurn(ctx, b)
	if b.From.Continues != "" && failure.Is(err, failure.TurnNotOpen) {
		b.From.Continues, b.From.Answers = "", nil
		return s.Store.BeginTurn(ctx, b)
	}
	return begun, err
}

type journalDropped struct {
	memory.Store
	gone map[string]bool // turns that continued another
}

func (s *journalDropped) BeginTurn(ctx context.Context, b memory.Begin) (memory.BeginResult, error) {
	begun, err := s.Store.BeginTurn(ctx, b)
	if begun.Turn.Continues != "" {
		s.gone[b.Ref.Session+begun.Turn.ID] = true
	}
	return begun, err
}

func (s *journalDropped) LoadJournal(ctx context.Context, h memory.Lease, step, after int) ([]execution.Entry, error) {
	entries, err := s.Store.LoadJournal(ctx, h, step, after)
	if s.gone[h.Ref.Session+h.TurnID] {
		entries = nil
	}
	return entries, err
}

type pendingHidden struct{ memory.Store }

func (s pendingHidden) GetSession(ctx context.Context, ref session.Ref) (session.Session, error) {
	found, err := s.Store.GetSession(ctx, ref)
	found.Pending = nil
	return found, err
}

type continuedUnasked struct{ memory.Store }

func (s continuedUnasked) BeginTurn(ctx context.Context, b memory.Begin) (memory.BeginResult, error) {
	if found, err := s.GetSession(ctx, b.Ref); err == nil && found.WaitingTurn != "" && len(b.UserMessages()) == 0 && !b.LookupOnly {
		b.From.Continues = found.WaitingTurn
	}
	return s.Store.BeginTurn(ctx, b)
}
