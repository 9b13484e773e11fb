package conformance

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"sync"
	"time"

	"go.opentelemetry.io/otel/trace"

	"github.com/troupe-dev/troupe/internal/grpcfailure"
	"github.com/troupe-dev/troupe/pkg/failure"
	troupev1 "github.com/troupe-dev/troupe/pkg/gen/troupe/v1"
)

// trial is one run of one check. Like a testing.T it ends the check at the first thing that
// is not as it must be; so its methods that check are for the check's own goroutine only.
type trial struct {
	ctx    context.Context //nolint:containedctx // a trial is one call, and every step of it is bound by this
	host   troupev1.ConformanceServiceClient
	memory *memory

	calls  sync.WaitGroup
	drops  []func()
	reason string
}

// try runs a check and says how it went.
func try(ctx context.Context, c Check, host troupev1.ConformanceServiceClient, memory *memory) Result {
	began := time.Now()
	ctx, cancel := context.WithTimeout(ctx, checkTime)
	t := &trial{ctx: ctx, host: host, memory: memory}
	ended := make(chan struct{})
	go func() { // of its own, which failf ends
		defer close(ended)
		c.run(t)
	}()
	<-ended
	cancel()
	t.calls.Wait()
	for _, drop := range slices.Backward(t.drops) {
		drop()
	}
	return Result{Check: c, Duration: time.Since(began), Reason: t.reason}
}

// failf ends the check: it has failed for the reason, which becomes one line.
func (t *trial) failf(format string, args ...any) {
	t.reason = strings.Join(strings.Fields(fmt.Sprintf(format, args...)), " ")
	if errors.Is(t.ctx.Err(), context.DeadlineExceeded) {
		t.reason += fmt.Sprintf(" (the check ran out of its %s)", checkTime)
	}
	runtime.Goexit()
}

// ok demands that a call did not fail.
func (t *trial) ok(what string, err error) {
	if err != nil {
		t.failf("%s: expected OK, actual %s", what, brief(err))
	}
}

// refused demands that a call failed with one of the modes, with the gRPC code of the mode
// and with the details by which a caller knows it.
func (t *trial) refused(what string, err error, modes ...failure.Mode) {
	_ = t.refusal(what, err, modes...)
}

// refusal is refused, and returns the failure.
func (t *trial) refusal(what string, err error, modes ...failure.Mode) *failure.Error {
	want := reasons(modes)
	if err == nil {
		t.failf("%s: expected %s, actual OK", what, want)
	}
	e := parse(err)
	if !slices.Contains(modes, e.Mode) {
		t.failf("%s: expected %s, actual %s", what, want, brief(err))
	}
	if e.Cause != nil {
		t.failf("%s: expected %s with a troupe.v1.Failure among its details, actual a bare status %s", what, want, codeOf(err))
	}
	if expected := codeOf(grpcfailure.ToStatus(failure.New(e.Mode, "", ""))); codeOf(err) != expected {
		t.failf("%s: expected %s with the code %s, actual the code %s", what, e.Mode.Reason(), expected, codeOf(err))
	}
	return e
}

// failed demands that a call failed, with whatever mode.
func (t *trial) failed(what string, err error) {
	if err == nil {
		t.failf("%s: expected an error, actual OK", what)
	}
}

// that demands a condition; expected and actual are for the report.
func (t *trial) that(holds bool, what string, expected, actual any) {
	if !holds {
		t.failf("%s: expected %v, actual %v", what, expected, actual)
	}
}

// equal demands that two values are the same.
func equal[T comparable](t *trial, what string, expected, actual T) {
	if expected != actual {
		t.failf("%s: expected %v, actual %v", what, show(expected), show(actual))
	}
}

// promptly demands that what waits for nothing takes no time: of ten answers half come
// within mostly, and all within promptly. ask returns how long one took. A machine that is
// busy for a moment is not the worker's fault, so it has a few rounds; a slow worker is slow
// in each.
func (t *trial) promptly(what string, ask func() time.Duration) {
	const rounds, answers = 3, 10
	var why string
	for range rounds {
		var took []time.Duration
		for len(took) < answers && (len(took) == 0 || took[len(took)-1] <= promptly) {
			took = append(took, ask())
		}
		last := took[len(took)-1]
		slices.Sort(took)
		switch median := took[len(took)/2]; {
		case last > promptly:
			why = fmt.Sprintf("expected within %s, actual %s", promptly, last.Round(time.Millisecond))
		case median > mostly:
			why = fmt.Sprintf("expected half of them within %s, actual %s", mostly, median.Round(time.Millisecond))
		default:
			return
		}
		t.idle(slack)
	}
	t.failf("%s, in each of %d rounds: %s", what, rounds, why)
}

// until asks every few milliseconds until the condition holds, and fails after the limit.
// The condition returns what it saw, for the report.
func (t *trial) until(what string, limit time.Duration, holds func() (bool, any)) {
	timeout := time.NewTimer(limit)
	defer timeout.Stop()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for {
		ok, seen := holds()
		if ok {
			return
		}
		select {
		case <-tick.C:
		case <-timeout.C:
			t.failf("expected %s within %s, actual %v", what, limit, seen)
		case <-t.ctx.Done():
			t.failf("expected %s, actual %v", what, seen)
		}
	}
}

// idle lets time pass, in which something must not happen.
func (t *trial) idle(d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-t.ctx.Done():
	}
}

// traced is the context of a call that is part of the trace.
func (t *trial) traced(traceID string) context.Context {
	id, err := trace.TraceIDFromHex(traceID)
	t.ok("trace id", err)
	return trace.ContextWithRemoteSpanContext(t.ctx, trace.NewSpanContext(trace.SpanContextConfig{
		TraceID: id, SpanID: trace.SpanID{1}, TraceFlags: trace.FlagsSampled, Remote: true,
	}))
}

// pending is a call that runs in the background.
type pending[T any] struct {
	done chan struct{}
	// Valid once done is closed.
	value T
	err   error
	began time.Time
	ended time.Time
}

// async begins a call, which must end when the trial's context does.
func async[T any](t *trial, call func() (T, error)) *pending[T] {
	p := &pending[T]{done: make(chan struct{}), began: time.Now()}
	t.calls.Go(func() {
		defer close(p.done)
		p.value, p.err = call()
		p.ended = time.Now()
	})
	return p
}

// wait returns what the call led to, and fails the check after the limit.
func (p *pending[T]) wait(t *trial, what string, limit time.Duration) (T, error) {
	timer := time.NewTimer(limit)
	defer timer.Stop()
	select {
	case <-p.done:
	case <-timer.C:
		t.failf("%s: expected an answer within %s, actual none", what, limit)
	}
	return p.value, p.err
}

// running reports whether there is no answer yet.
func (p *pending[T]) running() bool {
	select {
	case <-p.done:
		return false
	default:
		return true
	}
}

// parse is the failure that a status tells.
func parse(err error) *failure.Error {
	e, ok := grpcfailure.FromStatus("call", err).(*failure.Error) //nolint:errorlint // the outermost, or none
	if !ok {
		return failure.New(failure.Unknown, "call", "not a gRPC status").Because(err)
	}
	return e
}

// brief is an error as a report shows it.
func brief(err error) string {
	e := parse(err)
	if e.Cause != nil {
		return err.Error()
	}
	return fmt.Sprintf("%s (%s)", reasons([]failure.Mode{e.Mode}), e.Message)
}

// codeOf is the gRPC code of a status, by the text that gRPC gives it: only package failure
// knows codes.
func codeOf(err error) string {
	_, text, _ := strings.Cut(err.Error(), "code = ")
	code, _, _ := strings.Cut(text, " ")
	return code
}

func reasons(modes []failure.Mode) string {
	var names []string
	for _, m := range modes {
		names = append(names, cmp.Or(m.Reason(), "UNSPECIFIED"))
	}
	return strings.Join(names, " or ")
}

// show shortens the names of states and quotes text.
func show(v any) string {
	switch v := v.(type) {
	case troupev1.InstanceState:
		return stateName(v)
	case string:
		return fmt.Sprintf("%q", v)
	default:
		return fmt.Sprint(v)
	}
}

func stateName(s troupev1.InstanceState) string {
	return strings.TrimPrefix(s.String(), "INSTANCE_STATE_")
}
