package turn

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/troupe-dev/troupe/pkg/memory"
	"github.com/troupe-dev/troupe/pkg/session"
	"github.com/troupe-dev/troupe/services/orchestrator/internal/trace"
	"github.com/troupe-dev/troupe/services/orchestrator/internal/turn/admit"
	"github.com/troupe-dev/troupe/services/orchestrator/internal/turn/request"
)

func (r *rig) newImpatientRunner(t *testing.T, owner string) *Runner {
	t.Helper()
	runner := r.newRunner(t, owner)
	replaceRunner(t, runner, func(c *Config) { c.disconnectGrace = 20 * time.Millisecond })
	return runner
}

func cancellableRequest(sessionID string) request.Request {
	req := textRequest(sessionID, "r1")
	req.CancelOnDisconnect = true
	return req
}

// startAndLeave runs a request until the turn's first event and returns the trace. leave makes its client go away and
// returns when the stream has ended.
func startAndLeave(t *testing.T, r *Runner, req request.Request) (ref trace.Ref, leave func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	first, ended := make(chan trace.Ref, 1), make(chan struct{})
	go func() {
		defer close(ended)
		for e, err := range r.Orchestrate(ctx, req) {
			if err != nil {
				return
			}
			select {
			case first <- trace.Ref{Trace: e.GetTraceId()}:
			default:
			}
		}
	}()
	ref = receive(t, first)
	return ref, func() { cancel(); receive(t, ended) }
}

func TestRunner_CancelsATurnWhoseClientHasGone(t *testing.T) {
	rig := newRig(t)
	runner := rig.newImpatientRunner(t, "one")
	working, cancelled, release := rig.blockResearch()
	defer release()
	ref, leave := startAndLeave(t, runner, cancellableRequest("s1"))
	receive(t, working)
	leave()
	receive(t, cancelled)
	var last string
	for e, err := range runner.Watch(t.Context(), ref, 0, false) { // does not keep the turn running
		require.NoError(t, err)
		last = e.GetTurnResult().GetFailure().GetMessage()
	}
	require.Equal(t, "the turn was cancelled: its client has gone", last)
}

// A client that lost its connection reads on at another orchestrator. The turn is cancelled when it leaves that one.
func TestRunner_ContinuesATurnWhoseClientReadsOnElsewhere(t *testing.T) {
	rig := newRig(t)
	one, two := rig.newImpatientRunner(t, "one"), rig.newImpatientRunner(t, "two")
	runMaintenance(t, one) // hears of the cancellation
	working, cancelled, release := rig.blockResearch()
	defer release()
	ref, leave := startAndLeave(t, one, cancellableRequest("s1"))
	receive(t, working)
	ctx, leaveAgain := context.WithCancel(t.Context())
	defer leaveAgain()
	follows, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		first := true
		for range two.Watch(ctx, ref, 0, true) { //nolint:errcheck // its last error is that ctx has ended
			if first {
				close(follows)
			}
			first = false
		}
	}()
	receive(t, follows)
	leave()

	// The turn of another client, which leaves later and for good, is cancelled. So the grace of the first has passed.
	workingToo, cancelledToo, releaseToo := rig.blockResearch()
	defer releaseToo()
	_, leaveToo := startAndLeave(t, one, cancellableRequest("s2"))
	receive(t, workingToo)
	leaveToo()
	receive(t, cancelledToo)
	require.NotNil(t, one.active.FindBySession(session.Ref{Session: "s1"}))
	require.Empty(t, cancelled)

	leaveAgain()
	receive(t, ended)
	receive(t, cancelled)
}

// heldMemory holds calls of BeginTurn until they are released.
type heldMemory struct {
	admit.Memory
	asked, released chan struct{}
}

func (m *heldMemory) BeginTurn(ctx context.Context, b memory.Begin) (memory.BeginResult, error) {
	select {
	case m.asked <- struct{}{}:
	default:
	}
	<-m.released
	return m.Memory.BeginTurn(ctx, b)
}

func TestRunner_CancelsATurnWhoseClientHasGoneBeforeItBegan(t *testing.T) {
	rig := newRig(t)
	runner := rig.newImpatientRunner(t, "one")
	held := &heldMemory{Memory: rig.memory, asked: make(chan struct{}, 1), released: make(chan struct{})}
	replaceRunner(t, runner, func(c *Config) { c.Memory = held })
	_, _, release := rig.blockAgent("coordinator")
	defer release()
	ctx, leave := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() {
		for _, err := range runner.Orchestrate(ctx, cancellableRequest("s1")) {
			ended <- err
		}
	}()
	receive(t, held.asked)
	leave()
	require.ErrorIs(t, receive(t, ended), context.Canceled)
	close(held.released)
	require.Eventually(t, func() bool { // it may end before its first step is sent
		all, err := runner.cfg.Traces.Store().List(t.Context(), "", trace.Query{Limit: 1})
		return err == nil && len(all) == 1 && all[0].GetResult().GetOutcome() == cancelledOutcome
	}, patience, time.Millisecond)
}

// When an orchestrator stops, its clients go to another one.
func TestRunner_CancelsNoTurnWhenItStops(t *testing.T) {
	rig := newRig(t)
	runner := rig.newRunner(t, "one") // its clients would have 2 s
	working, _, release := rig.blockResearch()
	defer release()
	ref, leave := startAndLeave(t, runner, cancellableRequest("s1"))
	receive(t, working)
	leave()
	stopped := make(chan struct{})
	go func() { defer close(stopped); runner.Close(t.Context()) }()
	receive(t, runner.drain.CloseStarted())
	release()
	receive(t, stopped)
	record, err := runner.cfg.Traces.Store().Get(t.Context(), ref)
	require.NoError(t, err)
	require.Equal(t, outcomeCompleted, record.GetResult().GetOutcome())
}
