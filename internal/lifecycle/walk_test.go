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

// The walk takes an instance to every state that there is, with every lease, every number of
// running steps and with and without a pause under way, does everything there that can be
// done, and compares what happens with the table of guarantees 2.10.

const (
	walkCapacity = 2
	walkWait     = time.Second // of a verb that waits for steps which do not end
)

// place is where an instance stands.
type place struct {
	state   State
	flight  int
	pausing bool
	lease   Lease
}

func places() (all []place) {
	for _, lease := range []Lease{LeaseNone, LeaseOK, LeaseUnknown, LeaseExpired} {
		for _, s := range []State{Uninitialized, Initializing, Ready, Paused, ShuttingDown, Terminated} {
			all = append(all, place{s, 0, false, lease})
		}
		for flight := 1; flight <= walkCapacity; flight++ {
			all = append(all, place{Busy, flight, false, lease}, place{Busy, flight, true, lease}, place{ShuttingDown, flight, false, lease})
		}
	}
	return all
}

// after is where a verb must lead, and with which failure; the table as a function.
func (p place) after(verb string) (place, failure.Mode) {
	ended := p.state == ShuttingDown || p.state == Terminated
	switch verb {
	case "startup":
		switch {
		case ended:
			return p, failure.AgentState
		case p.state == Uninitialized:
			p.state = Ready
		case p.state == Initializing:
			return p, failure.AgentTimeout // it joins, and the hook hangs
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
		case p.flight == walkCapacity:
			return p, failure.InstanceFull
		}
		p.state, p.flight = Busy, p.flight+1
	case "end":
		if p.flight == 0 {
			return p, failure.Unknown
		}
		p.flight--
		switch {
		case p.flight > 0:
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
		case p.state == Busy: // past the deadline admission is open again, unless another Pause waits
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
		p.state, p.flight, p.pausing = Terminated, 0, false
	}
	return p, failure.Unknown
}

// bound is how long a verb may take: what waits does so to the deadline of its caller, a
// shutdown that may not drain a second (I5), and the rest no time at all.
func (p place) bound(verb string) time.Duration {
	switch {
	case verb == "shutdown":
		return time.Second
	case verb == "startup" && p.state == Initializing, verb == "pause" && p.state == Busy:
		return walkWait
	default:
		return 0
	}
}

// walker is an instance at a place.
type walker struct {
	*Instance
	free chan struct{} // closed: hooks return
	ends []func(error)
}

// walkTo brings a new instance to a place.
func walkTo(t *testing.T, p place) *walker {
	t.Helper()
	w := &walker{free: make(chan struct{})}
	cfg := Config{Capacity: walkCapacity}
	hang := func(context.Context) error { <-w.free; return nil }
	switch {
	case p.state == Initializing:
		cfg.Start = hang
	case p.state == ShuttingDown && p.flight == 0:
		cfg.Stop = hang
	}
	w.Instance = New(cfg)
	if p.state != Uninitialized {
		go func() { _ = w.Startup(context.WithoutCancel(t.Context())) }()
		synctest.Wait()
	}
	for range p.flight {
		ctx, end, err := w.Admit(t.Context())
		require.NoError(t, err)
		w.ends = append(w.ends, end)
		context.AfterFunc(ctx, func() { end(nil) }) // a step heeds its cancellation
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
	require.Equal(t, p, w.place())
	return w
}

func (w *walker) place() place {
	s := w.Status()
	return place{s.State, s.InFlight, s.Pausing, s.Lease}
}

// do does the verb and returns what came of it.
func (w *walker) do(ctx context.Context, verb string) (err error) {
	switch verb {
	case "startup":
		return w.Startup(ctx)
	case "step":
		var end func(error)
		if _, end, err = w.Admit(context.WithoutCancel(ctx)); err == nil {
			w.ends = append(w.ends, end)
		}
		return err
	case "end":
		if len(w.ends) > 0 {
			w.ends[0](nil)
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
func TestWalk_EveryVerbInEveryPlaceDoesWhatTheTableSays(t *testing.T) {
	walked := 0
	for _, from := range places() {
		for _, verb := range []string{"startup", "step", "end", "pause", "resume", "shutdown"} {
			walked++
			t.Run(fmt.Sprintf("%+v %s", from, verb), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					w := walkTo(t, from)
					defer close(w.free)
					want, mode := from.after(verb)
					before := w.Status().Version
					ctx, cancel := context.WithTimeout(t.Context(), walkWait)
					defer cancel()
					began := time.Now()
					err := w.do(ctx, verb)
					took := time.Since(began)
					synctest.Wait()
					if verb != "shutdown" { // which tells what went wrong, and ends all the same
						require.Equal(t, mode, failure.ModeOf(err), "%v", err)
					}
					require.LessOrEqual(t, took, from.bound(verb))
					require.Equal(t, want, w.place())
					require.Equal(t, want.state == from.state, w.Status().Version == before, "a version is a transition")
					story(t, w.Instance) // every transition is legal in its order, none is left out
					_ = w.Shutdown(context.WithoutCancel(ctx), 0, "")
				})
			})
		}
	}
	require.Equal(t, 4*(6+3*walkCapacity)*6, walked)
}
