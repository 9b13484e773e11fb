package maintenance

import (
	"context"

	"github.com/troupe-dev/troupe/pkg/memory"
	"github.com/troupe-dev/troupe/pkg/session"
)

// observedStore is a store that tells a Maintainer which sessions to check after their turns end.
type observedStore struct {
	memory.Store
	maintainer *Maintainer
}

// ObservedStore returns the store that callers must use. It lets the Maintainer check a session after each of its
// turns.
func (m *Maintainer) ObservedStore() memory.Store { return observedStore{m.cfg.Store, m} }

// CommitStep implements memory.Turns.
func (s observedStore) CommitStep(ctx context.Context, c memory.Commit) (int64, error) {
	last, err := s.Store.CommitStep(ctx, c)
	if err == nil && c.Outcome != session.OutcomeOpen {
		s.maintainer.enqueueCheck(c.Ref, last)
	}
	return last, err
}

// FailTurn implements memory.Turns.
func (s observedStore) FailTurn(ctx context.Context, f memory.Fail) (session.Turn, error) {
	turn, err := s.Store.FailTurn(ctx, f)
	if err == nil {
		s.maintainer.enqueueCheck(f.Ref, turn.Sequence)
	}
	return turn, err
}

// enqueueCheck queues a session for a check, unless the session is too short to need one or the queue is full.
func (m *Maintainer) enqueueCheck(ref session.Ref, last int64) {
	if last < m.minSequence {
		return
	}
	select {
	case m.checkQueue <- ref:
	default:
	}
}
