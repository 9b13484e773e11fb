package lifecycle

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/troupe-dev/troupe/pkg/failure"
)

// This test brings an instance into every situation: each state, lease and number of running steps, with and
// without a pending pause. In each situation it calls every verb, and compares the result with the table of
// guarantees 2.10.

const (
	testCapacity = 2
	verbTimeout  = time.Second // timeout of the verbs in this test
)

// situation is the part of a status that determines what a verb does.
type situation struct {
	state    State
	inFlight int
	pausing  bool
	lease    Lease
}

func allSituations() (all []situation) {
	for _, lease := range []Lease{LeaseNone, LeaseOK, LeaseUnknown, LeaseExpired} {
		for _, s := range []State{Uninitialized, Initializing, Ready, Paused, ShuttingDown, Terminated} {
			all = append(all, situation{s, 0, false, lease})
		}
		for flight := 1; flight <= testCapacity; flight++ {
			all = append(all, situation{Busy, flight, false, lease}, situation{Busy, flight, true, lease}, situation{ShuttingDown, flight, false, lease})
		}
	}
	return all
}

// expectedAfter returns the situation after a verb and the expected failure mode. It implements the table of
// guarantees 2.10.
func (p situation) expectedAfter(verb string) (situation, failure.Mode) {
	ended := p.state == ShuttingDown || p.state == Terminated
	switch verb {
	case "startup":
		switch {
		case ended:
			return p, failure.AgentState
		case p.state == Uninitialized:
			p.state = Ready
		case p.state == Initializing:
			return p, failure.AgentTimeout // it joins a start that hangs
		}
	case "step":
		switch {
		case p.state == Uninitialized || p.state == Initializing:
			return p, failure.AgentState
		case p.state == Paused || p.pausing:
			return p, failure.InstancePaused
		case ended:
			return p, failure.InstanceDraining
		case p.lease == LeaseExpired:
			return p, failure.InstancePaused
		case p.inFlight == testCapacity:
			return p, failure.InstanceFull
		}
		p.state, p.inFlight = Busy, p.inFlight+1
	case "end":
		if p.inFlight == 0 {
			return p, failure.Unknown
		}
		p.inFlight--
		switch {
		case p.inFlight > 0:
		case p.state == ShuttingDown:
			p.state = Terminated
		case p.pausing:
			p.state, p.pausing = Paused, false
		default:
			p.state = Ready
		}
	case "pause":
		switch {
		case ended:
			return p, failure.AgentState
		case p.state == Ready:
			p.state = Paused
		case p.state == Busy: // at its deadline admission opens again, unless another Pause waits
			return p, failure.AgentTimeout
		}
	case "resume":
		switch {
		case ended:
			return p, failure.AgentState
		case p.state == Paused:
			p.state = Ready
		default:
			p.pausing = false
		}
	case "shutdown":
		p.state, p.inFlight, p.pausing = Terminated, 0, false
	}
	return p, failure.Unknown
}

// maxDuration returns how long a verb may take. Verbs that wait for a step or a start take until the deadline of
// their caller. A shutdown without drain time takes up to a second (I5). All other verbs return at once.
func (p situation) maxDuration(verb string) time.Duration {
	switch {
	case verb == "shutdown":
		return time.Second
	case verb == "startup" && p.state == Initializing, verb == "pause" && p.state == Busy:
		return verbTimeout
	default:
		return 0
	}
}

// testInstance is an instance in a known situation, with the functions that end its steps.
type testInstance struct {
	*Instance
	hookRelease chan struct{} // hooks return once it is closed
	endFuncs    []func(error)
}

// newInstanceIn returns a new instance in the given situation.
func newInstanceIn(t *testing.T, p situation) *testInstance {
	t.Helper()
	w := &testInstance{hookRelease: make(chan struct{})}
	cfg := Config{Capacity: testCapacity}
	hang := func(context.Context) error { <-w.hookRelease; return nil }
	switch {
	case p.state == Initializing:
		cfg.Start = hang
	case p.state == ShuttingDown && p.inFlight == 0:
		cfg.Stop = hang
	}
	w.Instance = New(cfg)
	if p.state != Uninitialized {
		go func() { _ = w.Startup(context.WithoutCancel(t.Context())) }()
		synctest.Wait()
	}
	for range p.inFlight {
		ctx, end, err := w.Admit(t.Context())
		require.NoError(t, err)
		w.endFuncs = append(w.endFuncs, end)
		context.AfterFunc(ctx, func() { end(nil) }) // a step ends when it is cancelled
	}
	switch {
	case p.pausing:
		go func() { _ = w.Pause(t.Context(), "") }()
	case p.state == Paused:
		require.NoError(t, w.Pause(t.Context(), ""))
	case p.state == ShuttingDown:
		go func() { _ = w.Shutdown(t.Context(), time.Minute, "") }()
	case p.state == Terminated:
		require.NoError(t, w.Shutdown(t.Context(), time.Minute, ""))
	}
	synctest.Wait()
	w.SetLease(p.lease)
	require.Equal(t, p, w.currentSituation())
	return w
}

func (w *testInstance) currentSituation() situation {
	s := w.Status()
	return situation{s.State, s.InFlight, s.Pausing, s.Lease}
}

// callVerb calls a verb and returns its error.
func (w *testInstance) callVerb(ctx context.Context, verb string) (err error) {
	switch verb {
	case "startup":
		return w.Startup(ctx)
	case "step":
		var end func(error)
		if _, end, err = w.Admit(context.WithoutCancel(ctx)); err == nil {
			w.endFuncs = append(w.endFuncs, end)
		}
		return err
	case "end":
		if len(w.endFuncs) > 0 {
			w.endFuncs[0](nil)
		}
		return nil
	case "pause":
		return w.Pause(ctx, "")
	case "resume":
		return w.Resume(ctx, "")
	default:
		return w.Shutdown(ctx, 0, "")
	}
}

// Req: LC-1, LC-2, LC-3, LC-4, LC-5, LC-8, LC-20, LC-26, LC-29b
func TestInstance_VerbsMatchTheTable(t *testing.T) {
	walked := 0
	for _, from := range allSituations() {
		for _, verb := range []string{"startup", "step", "end", "pause", "resume", "shutdown"} {
			walked++
			t.Run(fmt.Sprintf("%+v %s", from, verb), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					w := newInstanceIn(t, from)
					defer close(w.hookRelease)
					want, mode := from.expectedAfter(verb)
					before := w.Status().Version
					ctx, cancel := context.WithTimeout(t.Context(), verbTimeout)
					defer cancel()
					began := time.Now()
					err := w.callVerb(ctx, verb)
					took := time.Since(began)
					synctest.Wait()
					if verb != "shutdown" { // Shutdown succeeds but may return errors of its parts
						require.Equal(t, mode, failure.ModeOf(err), "%v", err)
					}
					require.LessOrEqual(t, took, from.maxDuration(verb))
					require.Equal(t, want, w.currentSituation())
					require.Equal(t, want.state == from.state, w.Status().Version == before, "the version grows with each transition only")
					requireValidHistory(t, w.Instance)
					_ = w.Shutdown(context.WithoutCancel(ctx), 0, "")
				})
			})
		}
	}
	require.Equal(t, 4*(6+3*testCapacity)*6, walked)
}
