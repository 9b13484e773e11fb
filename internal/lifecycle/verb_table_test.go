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
func (s situation) expectedAfter(verb string) (situation, failure.Mode) {
	ended := s.state == ShuttingDown || s.state == Terminated
	switch verb {
	case "startup":
		switch {
		case ended:
			return s, failure.AgentState
		case s.state == Uninitialized:
			s.state = Ready
		case s.state == Initializing:
			return s, failure.AgentTimeout // it joins a start that hangs
		}
	case "step":
		switch {
		case s.state == Uninitialized || s.state == Initializing:
			return s, failure.AgentState
		case s.state == Paused || s.pausing:
			return s, failure.InstancePaused
		case ended:
			return s, failure.InstanceDraining
		case s.lease == LeaseExpired:
			return s, failure.InstancePaused
		case s.inFlight == testCapacity:
			return s, failure.InstanceFull
		}
		s.state, s.inFlight = Busy, s.inFlight+1
	case "end":
		if s.inFlight == 0 {
			return s, failure.Unknown
		}
		s.inFlight--
		switch {
		case s.inFlight > 0:
		case s.state == ShuttingDown:
			s.state = Terminated
		case s.pausing:
			s.state, s.pausing = Paused, false
		default:
			s.state = Ready
		}
	case "pause":
		switch {
		case ended:
			return s, failure.AgentState
		case s.state == Ready:
			s.state = Paused
		case s.state == Busy: // at its deadline admission opens again, unless another Pause waits
			return s, failure.AgentTimeout
		}
	case "resume":
		switch {
		case ended:
			return s, failure.AgentState
		case s.state == Paused:
			s.state = Ready
		default:
			s.pausing = false
		}
	case "shutdown":
		s.state, s.inFlight, s.pausing = Terminated, 0, false
	}
	return s, failure.Unknown
}

// maxDuration returns how long a verb may take. Verbs that wait for a step or a start take until the deadline of
// their caller. A shutdown without drain time takes up to a second (I5). All other verbs return at once.
func (s situation) maxDuration(verb string) time.Duration {
	switch {
	case verb == "shutdown":
		return time.Second
	case verb == "startup" && s.state == Initializing, verb == "pause" && s.state == Busy:
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

func (t *testInstance) currentSituation() situation {
	s := t.Status()
	return situation{s.State, s.InFlight, s.Pausing, s.Lease}
}

// callVerb calls a verb and returns its error.
func (t *testInstance) callVerb(ctx context.Context, verb string) (err error) {
	switch verb {
	case "startup":
		return t.Startup(ctx)
	case "step":
		var end func(error)
		if _, end, err = t.Admit(context.WithoutCancel(ctx)); err == nil {
			t.endFuncs = append(t.endFuncs, end)
		}
		return err
	case "end":
		if len(t.endFuncs) > 0 {
			t.endFuncs[0](nil)
		}
		return nil
	case "pause":
		return t.Pause(ctx, "")
	case "resume":
		return t.Resume(ctx, "")
	default:
		return t.Shutdown(ctx, 0, "")
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
