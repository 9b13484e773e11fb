package turn

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/troupe-dev/troupe/pkg/failure"
	troupev1 "github.com/troupe-dev/troupe/pkg/gen/troupe/v1"
	"github.com/troupe-dev/troupe/pkg/memory"
	"github.com/troupe-dev/troupe/pkg/session"
	"github.com/troupe-dev/troupe/services/orchestrator/internal/turn/admit"
	"github.com/troupe-dev/troupe/services/orchestrator/internal/turn/lease"
	"github.com/troupe-dev/troupe/services/orchestrator/internal/turn/request"
)

// renewalMemory is a memory service that reports each renewal of a lease.
type renewalMemory struct {
	admit.Memory
	renewed chan struct{}

	mu       sync.Mutex
	renewErr error
}

func (r *renewalMemory) RenewTurn(ctx context.Context, h memory.Lease, lease time.Duration) error {
	r.mu.Lock()
	away := r.renewErr
	r.mu.Unlock()
	if away != nil {
		return away
	}
	err := r.Memory.RenewTurn(ctx, h, lease)
	if err == nil {
		select {
		case r.renewed <- struct{}{}:
		default:
		}
	}
	return err
}

func (r *renewalMemory) setRenewError(away error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.renewErr = away
}

// newFrequentRenewalRunner returns a runner that renews its leases often.
func (r *rig) newFrequentRenewalRunner(t *testing.T, owner string) (*Runner, *renewalMemory) {
	t.Helper()
	runner := r.newRunner(t, owner)
	watched := &renewalMemory{Memory: runner.cfg.Memory, renewed: make(chan struct{})}
	replaceRunner(t, runner, func(c *Config) { c.Memory, c.renewalInterval = watched, 10*time.Millisecond })
	return runner, watched
}

// blockResearch makes research block until release is called, and reports when its step is cancelled.
func (r *rig) blockResearch() (working, cancelled chan struct{}, release func()) {
	return r.blockAgent("research")
}

// blockAgent makes an agent block until release is called, and reports when its step is cancelled.
func (r *rig) blockAgent(agent string) (working, cancelled chan struct{}, release func()) {
	working, cancelled = make(chan struct{}), make(chan struct{})
	released := make(chan struct{})
	r.setScript(agent, func(s *scriptedStep) error {
		r.setScript(agent, nil)
		close(working)
		select {
		case <-released:
			return s.commitAnswer("I am " + agent + ".")
		case <-s.stream.Context().Done():
			close(cancelled)
			return s.stream.Context().Err()
		}
	})
	return working, cancelled, sync.OnceFunc(func() { close(released) })
}

// startRequest runs a request to its end in the background.
func startRequest(t *testing.T, r *Runner, req request.Request) <-chan []*troupev1.Event {
	t.Helper()
	done := make(chan []*troupev1.Event, 1)
	go func() { done <- runToEnd(t, r, req) }()
	return done
}

// A turn may take much longer than its lease.
func TestTurn_RenewsItsLeaseWhileItRuns(t *testing.T) {
	rig := newRig(t)
	runner, memory := rig.newFrequentRenewalRunner(t, "one")
	working, _, release := rig.blockResearch()
	done := startRequest(t, runner, textRequest("s1", "r1"))
	receive(t, working)
	for range 5 {
		rig.clockAhead.Add(int64(lease.Duration) * 2 / 3)
		receive(t, memory.renewed)
		receive(t, memory.renewed) // the second renewal began after the first
	}
	begun, err := rig.memory.BeginTurn(t.Context(), rig.newBegin(textRequest("s1", "r1")))
	require.NoError(t, err)
	require.Positive(t, begun.LeaseLeft, "no other replica can take it over")
	release()
	require.Equal(t, outcomeCompleted, turnResult(receive(t, done)).GetOutcome())
	require.Len(t, rig.askedAgents(), 3)
}

// A runner stops at once and cancels its step when it finds that another orchestrator has taken over its turn.
func TestTurn_StopsAfterTakeoverByAnother(t *testing.T) {
	rig := newRig(t)
	first, memory := rig.newFrequentRenewalRunner(t, "one")
	working, cancelled, release := rig.blockResearch()
	defer release()
	left := runUntilStepStarts(t, first, textRequest("s1", "r1"), "research")
	receive(t, working)
	memory.setRenewError(failure.New(failure.SystemNetwork, "test", "away"))
	rig.expireLeases()
	events := runToEnd(t, rig.newRunner(t, "two"), textRequest("s1", "r1"))
	require.Equal(t, outcomeCompleted, turnResult(events).GetOutcome())
	memory.setRenewError(nil)
	require.NoError(t, receive(t, left), "its watchers go on with what the other stores")
	receive(t, cancelled)
}

// Deleting the session ends its turn, and watchers receive the failure.
func TestTurn_EndsWithItsSession(t *testing.T) {
	rig := newRig(t)
	runner, _ := rig.newFrequentRenewalRunner(t, "one")
	working, cancelled, release := rig.blockResearch()
	defer release()
	done := startRequest(t, runner, textRequest("s1", "r1"))
	receive(t, working)
	_, err := rig.memory.DeleteSession(t.Context(), session.Ref{Session: "s1"})
	require.NoError(t, err)
	result := turnResult(receive(t, done))
	require.Equal(t, outcomeFailed, result.GetOutcome())
	require.Equal(t, troupev1.FailureMode_FAILURE_MODE_SESSION_DELETED, result.GetFailure().GetMode())
	receive(t, cancelled)
}

// slowReclaimMemory is a memory service that delays its reply after it has applied a BeginTurn with a lost epoch.
type slowReclaimMemory struct {
	admit.Memory
	applied, release chan struct{}
}

func (r *slowReclaimMemory) BeginTurn(ctx context.Context, b memory.Begin) (memory.BeginResult, error) {
	begun, err := r.Memory.BeginTurn(ctx, b)
	if b.LostEpoch == 0 {
		return begun, err
	}
	close(r.applied)
	select {
	case <-r.release:
		return begun, err
	case <-ctx.Done():
		return memory.BeginResult{}, failure.New(failure.SystemTimeout, "test", "no answer in time").Because(ctx.Err())
	}
}

// A turn that is cancelled while it is being reclaimed from a lost attempt is closed under the new epoch.
func TestTurn_CancelDuringReclaimClosesUnderTheNewEpoch(t *testing.T) {
	rig := newRig(t)
	slow := &slowReclaimMemory{rig.memory, make(chan struct{}), make(chan struct{})}
	req := textRequest("s1", "r1")
	begin := rig.newBegin(req)
	begun, err := rig.memory.BeginTurn(t.Context(), begin)
	require.NoError(t, err)
	turn := lease.New(slow, begin, begun.Turn.Epoch, 0)
	work, cancel := context.WithCancelCause(t.Context())
	ended := make(chan error, 1)
	go func() {
		_, err := turn.Reclaim(work, map[int]bool{1: true})
		ended <- err
	}()
	receive(t, slow.applied)
	enough := failure.New(failure.UserCancelled, "test", "enough")
	cancel(enough)
	close(slow.release)
	require.ErrorIs(t, receive(t, ended), enough)
	closed, err := turn.Fail(t.Context(), session.OutcomeCancelled, enough)
	require.NoError(t, err)
	require.Equal(t, session.OutcomeCancelled, closed.Outcome)
	require.Equal(t, session.Ready, rig.state(t, "s1"))
}
