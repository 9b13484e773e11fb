// Package lease manages the lease and the epoch of one turn at its orchestrator. The epoch fences the writes of
// workers, and the lease keeps other orchestrators away. The memory service stores both.
package lease

import (
	"context"
	"sync"
	"time"

	"go.uber.org/zap"

	"github.com/troupe-dev/troupe/internal/retry"
	"github.com/troupe-dev/troupe/internal/wire"
	"github.com/troupe-dev/troupe/pkg/execution"
	"github.com/troupe-dev/troupe/pkg/failure"
	troupev1 "github.com/troupe-dev/troupe/pkg/gen/troupe/v1"
	"github.com/troupe-dev/troupe/pkg/memory"
	"github.com/troupe-dev/troupe/pkg/session"
)

// Durations for leases. An orchestrator that drives a turn renews its lease. After a lease has expired, the next
// orchestrator that asks for the turn takes it over.
const (
	Duration = 30 * time.Second
	Interval = 10 * time.Second // time between two renewals
	// TakeoverGrace is how long after the end of its lease an open turn is reserved for a takeover. Only after
	// that may another turn of the session replace it.
	TakeoverGrace = 10 * time.Second
	// BeginTimeout bounds a call to the memory service about a turn, including retries.
	BeginTimeout = 10 * time.Second
)

// Memory is the part of the memory service that a lease uses.
type Memory interface {
	BeginTurn(ctx context.Context, b memory.Begin) (memory.BeginResult, error)
	RenewTurn(ctx context.Context, h memory.Lease, lease time.Duration) error
	ReleaseTurn(ctx context.Context, h memory.Lease) error
	FailTurn(ctx context.Context, f memory.Fail) (session.Turn, error)
}

// Lease is the lease of a turn that this orchestrator has begun. Its methods may be called concurrently, except
// that Reclaim must not run concurrently with a call that reads Epoch.
type Lease struct {
	memory   Memory
	begin    memory.Begin // the request with which the turn was begun
	interval time.Duration

	callMu sync.Mutex // serializes calls that depend on the epoch
	epoch  int64
}

// New returns the lease of a turn that was begun under an epoch. Interval is the time between two
// renewals (0 means Interval).
func New(m Memory, begin memory.Begin, epoch int64, interval time.Duration) *Lease {
	if interval == 0 {
		interval = Interval
	}
	return &Lease{memory: m, begin: begin, epoch: epoch, interval: interval}
}

// Epoch returns the epoch under which the turn is driven now.
func (l *Lease) Epoch() int64 { return l.epoch }

// Fingerprint returns the fingerprint of the request for which the turn was begun.
func (l *Lease) Fingerprint() string { return l.begin.Fingerprint }

func (l *Lease) toMemoryLease() memory.Lease {
	return memory.Lease{Ref: l.begin.Ref, TurnID: l.begin.TurnID, Epoch: l.epoch}
}

// KeepAlive renews the lease until work ends. It cancels work when another orchestrator has the turn or its
// session is gone. While the memory service is unavailable KeepAlive keeps trying, because no other orchestrator
// can get the turn then either.
func (l *Lease) KeepAlive(work context.Context, end context.CancelCauseFunc, log *zap.Logger) {
	tick := time.NewTicker(l.interval)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
		case <-work.Done():
			return
		}
		err := l.renew(work)
		switch {
		case failure.Is(err, failure.TurnNotOpen):
			return // the turn is closed, by its last commit or for another turn; Fail finds out which
		case failure.Is(err, failure.Fenced, failure.NotFound, failure.SessionDeleted):
			end(err)
			return
		case err != nil && work.Err() == nil:
			log.Warn("lease not renewed", zap.Error(err))
		}
	}
}

func (l *Lease) renew(ctx context.Context) error {
	l.callMu.Lock()
	defer l.callMu.Unlock()
	ctx, cancel := context.WithTimeout(ctx, l.interval)
	defer cancel()
	_, err := retry.Do(ctx, func(ctx context.Context) (struct{}, error) {
		return struct{}{}, l.memory.RenewTurn(ctx, l.toMemoryLease(), Duration)
	})
	return err
}

// Release ends the lease, so that another orchestrator can take the turn over at once. Modes: fenced or not_found
// when another one has already taken it, turn_not_open when it is closed.
func (l *Lease) Release(ctx context.Context) error {
	_, err := retry.Do(ctx, func(ctx context.Context) (struct{}, error) {
		return struct{}{}, l.memory.ReleaseTurn(ctx, l.toMemoryLease())
	})
	return err
}

// Fail closes the turn without an answer. If the commit of its last step has already closed it, Fail returns the
// turn as that commit left it. Modes: fenced, session_deleted.
func (l *Lease) Fail(ctx context.Context, outcome session.Outcome, why *failure.Error) (session.Turn, error) {
	return l.close(ctx, memory.Fail{Outcome: outcome, Failure: why})
}

// Suspend closes the turn until answers come to calls of these results, which are not committed. Modes: fenced,
// session_deleted.
func (l *Lease) Suspend(ctx context.Context, uncommitted []execution.Result) (session.Turn, error) {
	return l.close(ctx, memory.Fail{Outcome: session.InputOutcome(uncommitted...), Results: uncommitted})
}

func (l *Lease) close(ctx context.Context, f memory.Fail) (session.Turn, error) {
	f.Ref, f.TurnID, f.Epoch = l.begin.Ref, l.begin.TurnID, l.epoch
	return retry.Do(ctx, func(ctx context.Context) (session.Turn, error) { return l.memory.FailTurn(ctx, f) })
}

// Reclaim raises the epoch of the turn after the attempts at these steps were lost, so that their workers can
// write nothing more (guarantee F1). No other attempt of the turn may run meanwhile. It returns, by number, the
// results that the lost workers had committed before. If work ends meanwhile, Reclaim still waits for the answer,
// because the turn can only be closed under its latest epoch. Modes: fenced, turn_not_open.
func (l *Lease) Reclaim(work context.Context, lost map[int]bool) (map[int]*troupev1.StepResult, error) {
	l.callMu.Lock()
	defer l.callMu.Unlock()
	again := l.begin
	again.LostEpoch = l.epoch
	ctx, cancel := withGracePeriod(work, BeginTimeout)
	defer cancel()
	begun, err := retry.Do(ctx, func(ctx context.Context) (memory.BeginResult, error) { return l.memory.BeginTurn(ctx, again) })
	if err != nil {
		return nil, err
	}
	switch {
	case begun.Status == memory.StatusOpen:
		return nil, failure.New(failure.Fenced, "turn", "another orchestrator has taken the turn over")
	case begun.Status == memory.StatusBegun:
		l.epoch = begun.Turn.Epoch
	case begun.Turn.Outcome == session.OutcomeFailed || begun.Turn.Outcome == session.OutcomeCancelled:
		return nil, failure.New(failure.TurnNotOpen, "turn", "the turn was closed while it ran")
	}
	committed := map[int]*troupev1.StepResult{}
	for _, r := range begun.Turn.Steps {
		if lost[r.Step] {
			committed[r.Step] = wire.ResultToProto(r)
		}
	}
	switch {
	case len(committed) == len(lost):
		return committed, nil
	case begun.Status == memory.StatusClosed:
		return nil, failure.New(failure.TurnNotOpen, "turn", "the turn was closed while it ran")
	}
	return committed, context.Cause(work) // nil while work has not ended
}

// withGracePeriod returns a context that ends some time after ctx has ended.
func withGracePeriod(ctx context.Context, grace time.Duration) (context.Context, context.CancelFunc) {
	late, cancel := context.WithCancel(context.WithoutCancel(ctx))
	stop := context.AfterFunc(ctx, func() { time.AfterFunc(grace, cancel) })
	return late, func() { stop(); cancel() }
}
