package maintenance

import (
	"context"

	"github.com/troupe-dev/troupe/pkg/memory"
	"github.com/troupe-dev/troupe/pkg/session"
)

// observedStore is a store that notifies a keeper of turns that end.
type observedStore struct {
	memory.Store
	keeper *Keeper
}

// Observe returns the store for callers: the keeper checks a session after each of its turns.
func (k *Keeper) Observe() memory.Store { return observedStore{k.cfg.Store, k} }

// CommitStep implements memory.Turns.
func (s observedStore) CommitStep(ctx context.Context, c memory.Commit) (int64, error) {
	last, err := s.Store.CommitStep(ctx, c)
	if err == nil && c.Outcome != session.OutcomeOpen {
		s.keeper.turnEnded(c.Ref, last)
	}
	return last, err
}

// FailTurn implements memory.Turns.
func (s observedStore) FailTurn(ctx context.Context, f memory.Fail) (session.Turn, error) {
	turn, err := s.Store.FailTurn(ctx, f)
	if err == nil {
		s.keeper.turnEnded(f.Ref, turn.Sequence)
	}
	return turn, err
}

// turnEnded queues a session to be checked, unless it is too short to need a check or the queue is full.
func (k *Keeper) turnEnded(ref session.Ref, last int64) {
	if last < k.minSequence {
		return
	}
	select {
	case k.ended <- ref:
	default:
	}
}
