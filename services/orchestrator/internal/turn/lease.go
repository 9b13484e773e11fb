package turn

import (
	"context"
	"slices"
	"time"

	"go.uber.org/zap"

	"github.com/troupe-dev/troupe/internal/retry"
	"github.com/troupe-dev/troupe/internal/wire"
	"github.com/troupe-dev/troupe/pkg/failure"
	troupev1 "github.com/troupe-dev/troupe/pkg/gen/troupe/v1"
	"github.com/troupe-dev/troupe/pkg/memory"
	"github.com/troupe-dev/troupe/pkg/session"
)

// A turn belongs to its runner for a lease, which runs anew as long as the runner drives
// it. Whoever asks for the turn after that takes it over.
const (
	lease   = 30 * time.Second
	renewal = 10 * time.Second
	// reserve is for how long a turn that nobody holds is left to who takes it over, before another
	// turn of its session makes room of it: an orchestrator that is gone must not cost a turn.
	reserve = 10 * time.Second
)

// keep renews the lease until the work ends, and ends the work when the turn is no longer
// this runner's. While the memory service is away it goes on trying: nobody else can have
// the turn meanwhile.
func (t *turn) keep(work context.Context, abort context.CancelCauseFunc) {
	tick := time.NewTicker(t.renewal)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
		case <-work.Done():
			return
		}
		err := t.renew(work)
		switch {
		case failure.Is(err, failure.TurnNotOpen):
			return // by the commit of its last step, or to make room: whoever closes it is told
		case failure.Is(err, failure.Fenced, failure.NotFound, failure.SessionDeleted):
			abort(err)
			return
		case err != nil && work.Err() == nil:
			t.log.Warn("lease not renewed", zap.String("trace", t.turn.Trace), zap.Error(err))
		}
	}
}

func (t *turn) renew(ctx context.Context) error {
	t.holding.Lock()
	defer t.holding.Unlock()
	ctx, cancel := context.WithTimeout(ctx, t.renewal)
	defer cancel()
	_, err := retry.Do(ctx, func(ctx context.Context) (struct{}, error) {
		return struct{}{}, t.Memory.RenewTurn(ctx, memory.Hold{Ref: t.req.ref(), TurnID: t.turn.ID, Epoch: t.turn.Epoch}, lease)
	})
	return err
}

// reclaim takes the turn back from attempts that were lost, when no other runs: from here on
// their workers can write no more (guarantee F1). It returns the results of the steps, by
// number, whose workers had committed them before. When the work ends meanwhile, the answer is
// awaited nevertheless: the turn can only be closed under the epoch that it has.
func (t *turn) reclaim(work context.Context, lost []*attempt) (map[int]*troupev1.StepResult, error) {
	t.holding.Lock()
	defer t.holding.Unlock()
	again := t.begin
	again.LostEpoch = t.turn.Epoch
	ctx, cancel := outlive(work, beginTime)
	defer cancel()
	begun, err := retry.Do(ctx, func(ctx context.Context) (memory.Begun, error) { return t.Memory.BeginTurn(ctx, again) })
	if err != nil {
		return nil, err
	}
	switch {
	case begun.Found == memory.FoundOpen:
		return nil, failure.New(failure.Fenced, "turn", "another orchestrator has taken the turn over")
	case begun.Found == memory.FoundBegun:
		t.turn.Epoch, t.turn.Attempt = begun.Turn.Epoch, begun.Turn.Attempt
		t.events.Under(t.turn.Epoch)
	case begun.Turn.Outcome == session.OutcomeFailed || begun.Turn.Outcome == session.OutcomeCancelled:
		return nil, failure.New(failure.TurnNotOpen, "turn", "the turn was closed while it ran")
	}
	committed := map[int]*troupev1.StepResult{}
	for _, r := range begun.Turn.Steps {
		if slices.ContainsFunc(lost, func(a *attempt) bool { return a.number == r.Step }) {
			committed[r.Step] = wire.ResultToProto(r)
		}
	}
	switch {
	case len(committed) == len(lost):
		return committed, nil
	case begun.Found == memory.FoundClosed:
		return nil, failure.New(failure.TurnNotOpen, "turn", "the turn was closed while it ran")
	}
	return committed, context.Cause(work) // nil while the work goes on
}

// outlive returns a context that ends a little later than ctx.
func outlive(ctx context.Context, grace time.Duration) (context.Context, context.CancelFunc) {
	late, cancel := context.WithCancel(context.WithoutCancel(ctx))
	stop := context.AfterFunc(ctx, func() { time.AfterFunc(grace, cancel) })
	return late, func() { stop(); cancel() }
}
