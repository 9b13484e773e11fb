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

// TestDivergence_FindsMutants gives the comparison stores with one thing wrong each, as a
// store under test may have it.
func TestDivergence_FindsMutants(t *testing.T) {
	open := func() memory.Store {
		return New(Config{MaxMessages: memorytest.MaxMessages, MaxBytes: memorytest.MaxBytes})
	}
	for name, wrong := range map[string]memory.Store{
		"a lost epoch is ignored":             patient{open()},
		"a lost epoch takes over each time":   eager{open()},
		"a release does nothing":              clinging{open()},
		"a turn that goes on says something":  chatty{open()},
		"a commit's state is left out":        stateless{open()},
		"a failed turn says nothing":          silent{open()},
		"a request is made again":             repeating{open()},
		"a stale epoch writes state":          unfenced{open()},
		"an entry is overwritten":             careless{open()},
		"a window has a message too many":     generous{open()},
		"a compaction keeps too little":       greedy{open()},
		"a clear leaves the state":            tidy{open()},
		"a deleted artifact is still there":   hoarding{open()},
		"a version is made for equal content": prolific{open()},
		"answers are not kept":                deaf{open()},
		"what does not wait goes on":          obliging{open()},
		"a turn goes on without a journal":    &forgetful{Store: open(), gone: map[string]bool{}},
		"what waits is not told":              discreet{open()},
		"what waits goes on unasked":          stubborn{open()},
		"what is a user's is the session's":   selfish{open()},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, err := memorytest.FirstDifference(t.Context(), open(), wrong, 20_000, 1)
			require.Error(t, err)
		})
	}
}

type patient struct{ memory.Store }

func (s patient) BeginTurn(ctx context.Context, b memory.Begin) (memory.Begun, error) {
	b.LostEpoch = 0
	return s.Store.BeginTurn(ctx, b)
}

type eager struct{ memory.Store }

func (s eager) BeginTurn(ctx context.Context, b memory.Begin) (memory.Begun, error) {
	begun, err := s.Store.BeginTurn(ctx, b)
	if b.LostEpoch > 0 && begun.Status == memory.StatusBegun && begun.Turn.Epoch > b.LostEpoch {
		b.LostEpoch = begun.Turn.Epoch
		return s.Store.BeginTurn(ctx, b)
	}
	return begun, err
}

type chatty struct{ memory.Store }

func (s chatty) BeginTurn(ctx context.Context, b memory.Begin) (memory.Begun, error) {
	b.Message.Role = conversation.RoleUser
	return s.Store.BeginTurn(ctx, b)
}

type clinging struct{ memory.Store }

func (s clinging) ReleaseTurn(ctx context.Context, h memory.Lease) error {
	return s.RenewTurn(ctx, h, memory.MaxLeaseTTL)
}

type stateless struct{ memory.Store }

func (s stateless) CommitStep(ctx context.Context, c memory.Commit) (int64, error) {
	c.State = nil
	return s.Store.CommitStep(ctx, c)
}

type selfish struct{ memory.Store }

func (s selfish) PutArtifact(ctx context.Context, h memory.Lease, a memory.Artifact) (memory.Artifact, error) {
	name := a.Name
	a.Name = strings.TrimPrefix(a.Name, "user:")
	put, err := s.Store.PutArtifact(ctx, h, a)
	put.Name = name
	return put, err
}

type silent struct{ memory.Store }

func (s silent) Record(ctx context.Context, h memory.Lease, step int, entries []execution.Entry) error {
	mute := make([]execution.Entry, len(entries))
	for i, e := range entries {
		e.Reply = conversation.Message{}
		mute[i] = e
	}
	return s.Store.Record(ctx, h, step, mute)
}

type repeating struct{ memory.Store }

func (s repeating) UpdateState(ctx context.Context, u memory.StateUpdate) (int64, error) {
	u.RequestID = rand.Text()
	return s.Store.UpdateState(ctx, u)
}

type unfenced struct{ memory.Store }

func (s unfenced) UpdateState(ctx context.Context, u memory.StateUpdate) (int64, error) {
	u.TurnID = ""
	return s.Store.UpdateState(ctx, u)
}

type careless struct{ memory.Store }

func (s careless) Record(ctx context.Context, h memory.Lease, step int, entries []execution.Entry) error {
	err := s.Store.Record(ctx, h, step, entries)
	if failure.Is(err, failure.Nondeterminism) {
		return nil
	}
	return err
}

type generous struct{ memory.Store }

func (s generous) BeginTurn(ctx context.Context, b memory.Begin) (memory.Begun, error) {
	b.Window++
	return s.Store.BeginTurn(ctx, b)
}

type greedy struct{ memory.Store }

func (s greedy) CompactSession(ctx context.Context, c memory.Compact) (conversation.Compaction, error) {
	c.Keep = max(1, c.Keep-1)
	return s.Store.CompactSession(ctx, c)
}

type tidy struct{ memory.Store }

func (s tidy) ClearSession(ctx context.Context, ref session.Ref) error {
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

type hoarding struct{ memory.Store }

func (s hoarding) DeleteArtifact(ctx context.Context, h memory.Lease, _ string, _ int) error {
	return s.RenewTurn(ctx, h, time.Minute)
}

type prolific struct{ memory.Store }

func (s prolific) PutArtifact(ctx context.Context, h memory.Lease, a memory.Artifact) (memory.Artifact, error) {
	if latest, err := s.GetArtifact(ctx, h.Ref, a.Name, 0); err == nil && latest.Content == a.Content && a.Size > 0 {
		if err := s.DeleteArtifact(ctx, h, a.Name, latest.Version); err != nil {
			return memory.Artifact{}, err
		}
	}
	return s.Store.PutArtifact(ctx, h, a)
}

type deaf struct{ memory.Store }

func (s deaf) BeginTurn(ctx context.Context, b memory.Begin) (memory.Begun, error) {
	if b.Continues != "" {
		b.Answers = nil
	}
	return s.Store.BeginTurn(ctx, b)
}

type obliging struct{ memory.Store }

func (s obliging) BeginTurn(ctx context.Context, b memory.Begin) (memory.Begun, error) {
	begun, err := s.Store.BeginTurn(ctx, b)
	if b.Continues != "" && failure.Is(err, failure.TurnNotOpen) {
		b.Continues, b.Answers = "", nil
		return s.Store.BeginTurn(ctx, b)
	}
	return begun, err
}

type forgetful struct {
	memory.Store
	gone map[string]bool // turns that went on
}

func (s *forgetful) BeginTurn(ctx context.Context, b memory.Begin) (memory.Begun, error) {
	begun, err := s.Store.BeginTurn(ctx, b)
	if begun.Turn.Continues != "" {
		s.gone[b.Ref.Session+begun.Turn.ID] = true
	}
	return begun, err
}

func (s *forgetful) LoadJournal(ctx context.Context, h memory.Lease, step, after int) ([]execution.Entry, error) {
	entries, err := s.Store.LoadJournal(ctx, h, step, after)
	if s.gone[h.Ref.Session+h.TurnID] {
		entries = nil
	}
	return entries, err
}

type discreet struct{ memory.Store }

func (s discreet) GetSession(ctx context.Context, ref session.Ref) (session.Session, error) {
	found, err := s.Store.GetSession(ctx, ref)
	found.Pending = nil
	return found, err
}

type stubborn struct{ memory.Store }

func (s stubborn) BeginTurn(ctx context.Context, b memory.Begin) (memory.Begun, error) {
	if found, err := s.GetSession(ctx, b.Ref); err == nil && found.WaitingTurn != "" && len(b.UserMessages()) == 0 && !b.LookupOnly {
		b.Continues = found.WaitingTurn
	}
	return s.Store.BeginTurn(ctx, b)
}
