package upkeep

import (
	"context"

	"github.com/troupe-dev/troupe/pkg/memory"
	"github.com/troupe-dev/troupe/pkg/session"
)

// watched is a store of which a keeper learns when turns end.
type watched struct {
	memory.Store
	keeper *Keeper
}

// Watch returns the keeper's store as callers use it: the keeper sees to a session when one
// of its turns has ended, behind the caller's back.
func (k *Keeper) Watch() memory.Store { return watched{k.cfg.Store, k} }

// CommitStep implements memory.Turns.
func (w watched) CommitStep(ctx context.Context, c memory.Commit) (int64, error) {
	last, err := w.Store.CommitStep(ctx, c)
	if err == nil && c.Outcome != session.OutcomeOpen {
		w.keeper.ended(c.Ref, last)
	}
	return last, err
}

// FailTurn implements memory.Turns.
func (w watched) FailTurn(ctx context.Context, f memory.Fail) (session.Turn, error) {
	turn, err := w.Store.FailTurn(ctx, f)
	if err == nil {
		w.keeper.ended(f.Ref, turn.Sequence)
	}
	return turn, err
}

// ended has a session looked at, unless it cannot be of interest, or too many wait.
func (k *Keeper) ended(ref session.Ref, last int64) {
	if last < k.least {
		return
	}
	select {
	case k.closed <- ref:
	default:
	}
}
