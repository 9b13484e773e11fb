// Package check is what the checks are written with: T runs one check, as a testing.T runs a test;
// an Instance is one instance under test; MemoryService receives what the instances commit.
package check

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

// Callers is how many call at the same time where it may make a difference.
const Callers = 16

// Times that the checks allow.
const (
	// CheckTime bounds a check.
	CheckTime = 10 * time.Second
	// medianTime is the most that half of the answers may take which wait for nothing.
	medianTime = 50 * time.Millisecond
	// promptTime is the most that each of them may take. The difference is for the network and a busy machine.
	promptTime = 250 * time.Millisecond
	// Slack is how much later than a deadline an answer may come, for the same reasons.
	Slack = 500 * time.Millisecond
)

// Check is one rule and the function that tests it.
type Check struct {
	ID          string
	Requirement string
	Title       string
	// Alone is set when other checks would disturb this one, because it measures short times.
	Alone bool
	Run   func(t *T)
}

// T is one run of one check. Like a testing.T it ends the check at the first thing that
// is not as it must be; so its methods that check are for the check's own goroutine only.
type T struct {
	Ctx    context.Context //nolint:containedctx // a trial is one call, and every step of it is bound by this
	host   troupev1.ConformanceServiceClient
	Memory *MemoryService

	calls  sync.WaitGroup
	drops  []func()
	reason string
}

// Run runs a check and says how it went.
func Run(ctx context.Context, c Check, host troupev1.ConformanceServiceClient, memory *MemoryService) (reason string) {
	ctx, cancel := context.WithTimeout(ctx, CheckTime)
	t := &T{Ctx: ctx, host: host, Memory: memory}
	ended := make(chan struct{})
	go func() { // of its own, which failf ends
		defer close(ended)
		c.Run(t)
	}()
	<-ended
	cancel()
	t.calls.Wait()
	for _, drop := range slices.Backward(t.drops) {
		drop()
	}
	return t.reason
}

// Failf ends the check: it has failed for the reason, which becomes one line.
func (t *T) Failf(format string, args ...any) {
	t.reason = strings.Join(strings.Fields(fmt.Sprintf(format, args...)), " ")
	if errors.Is(t.Ctx.Err(), context.DeadlineExceeded) {
		t.reason += fmt.Sprintf(" (the check ran out of its %s)", CheckTime)
	}
	runtime.Goexit()
}

// NoError demands that a call did not fail.
func (t *T) NoError(what string, err error) {
	if err != nil {
		t.Failf("%s: expected OK, actual %s", what, FormatError(err))
	}
}

// Rejected demands that a call failed with one of the modes, with the gRPC code of the mode
// and with the details that a caller identifies it by.
func (t *T) Rejected(what string, err error, modes ...failure.Mode) {
	_ = t.Rejection(what, err, modes...)
}

// Rejection is refused, and returns the failure.
func (t *T) Rejection(what string, err error, modes ...failure.Mode) *failure.Error {
	want := reasons(modes)
	if err == nil {
		t.Failf("%s: expected %s, actual OK", what, want)
	}
	e := ParseError(err)
	if !slices.Contains(modes, e.Mode) {
		t.Failf("%s: expected %s, actual %s", what, want, FormatError(err))
	}
	if e.Cause != nil {
		t.Failf("%s: expected %s with a troupe.v1.Failure among its details, actual a bare status %s", what, want, codeOf(err))
	}
	if expected := codeOf(grpcfailure.ToStatus(failure.New(e.Mode, "", ""))); codeOf(err) != expected {
		t.Failf("%s: expected %s with the code %s, actual the code %s", what, e.Mode.Reason(), expected, codeOf(err))
	}
	return e
}

// Error demands that a call failed, with whatever mode.
func (t *T) Error(what string, err error) {
	if err == nil {
		t.Failf("%s: expected an error, actual OK", what)
	}
}

// True demands a condition; expected and actual are for the report.
func (t *T) True(holds bool, what string, expected, actual any) {
	if !holds {
		t.Failf("%s: expected %v, actual %v", what, expected, actual)
	}
}

// Equal demands that two values are the same.
func Equal[V comparable](t *T, what string, expected, actual V) {
	if expected != actual {
		t.Failf("%s: expected %v, actual %v", what, Show(expected), Show(actual))
	}
}

// Promptly demands that what waits for nothing takes no time: of ten answers half come
// within medianTime, and all within promptTime. ask returns how long one took. A machine that is
// busy for a moment is not the worker's fault, so it has a few rounds; a slow worker is slow
// in each.
func (t *T) Promptly(what string, ask func() time.Duration) {
	const rounds, answers = 3, 10
	var why string
	for range rounds {
		var took []time.Duration
		for len(took) < answers && (len(took) == 0 || took[len(took)-1] <= promptTime) {
			took = append(took, ask())
		}
		last := took[len(took)-1]
		slices.Sort(took)
		switch median := took[len(took)/2]; {
		case last > promptTime:
			why = fmt.Sprintf("expected within %s, actual %s", promptTime, last.Round(time.Millisecond))
		case median > medianTime:
			why = fmt.Sprintf("expected half of them within %s, actual %s", medianTime, median.Round(time.Millisecond))
		default:
			return
		}
		t.Sleep(Slack)
	}
	t.Failf("%s, in each of %d rounds: %s", what, rounds, why)
}

// Eventually asks every few milliseconds until the condition holds, and fails after the limit.
// The condition returns what it saw, for the report.
func (t *T) Eventually(what string, limit time.Duration, holds func() (bool, any)) {
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
			t.Failf("expected %s within %s, actual %v", what, limit, seen)
		case <-t.Ctx.Done():
			t.Failf("expected %s, actual %v", what, seen)
		}
	}
}

// Sleep lets time pass, in which something must not happen.
func (t *T) Sleep(d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-t.Ctx.Done():
	}
}

// TraceContext is the context of a call that is part of the trace.
func (t *T) TraceContext(traceID string) context.Context {
	id, err := trace.TraceIDFromHex(traceID)
	t.NoError("trace id", err)
	return trace.ContextWithRemoteSpanContext(t.Ctx, trace.NewSpanContext(trace.SpanContextConfig{
		TraceID: id, SpanID: trace.SpanID{1}, TraceFlags: trace.FlagsSampled, Remote: true,
	}))
}

// Call is a call that runs in the background.
type Call[V any] struct {
	done chan struct{}
	// Valid once done is closed.
	Value V
	Err   error
	Began time.Time
	Ended time.Time
}

// Go begins a call, which must end when the trial's context does.
func Go[V any](t *T, call func() (V, error)) *Call[V] {
	p := &Call[V]{done: make(chan struct{}), Began: time.Now()}
	t.calls.Go(func() {
		defer close(p.done)
		p.Value, p.Err = call()
		p.Ended = time.Now()
	})
	return p
}

// Wait returns what the call led to, and fails the check after the limit.
func (p *Call[V]) Wait(t *T, what string, limit time.Duration) (V, error) {
	timer := time.NewTimer(limit)
	defer timer.Stop()
	select {
	case <-p.done:
	case <-timer.C:
		t.Failf("%s: expected an answer within %s, actual none", what, limit)
	}
	return p.Value, p.Err
}

// Running reports whether there is no answer yet.
func (p *Call[V]) Running() bool {
	select {
	case <-p.done:
		return false
	default:
		return true
	}
}

// ParseError is the failure that a status tells.
func ParseError(err error) *failure.Error {
	e, ok := grpcfailure.FromStatus("call", err).(*failure.Error) //nolint:errorlint // the outermost, or none
	if !ok {
		return failure.New(failure.Unknown, "call", "not a gRPC status").Because(err)
	}
	return e
}

// FormatError is an error as a report shows it.
func FormatError(err error) string {
	e := ParseError(err)
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

// Show shortens the names of states and quotes text.
func Show(v any) string {
	switch v := v.(type) {
	case troupev1.InstanceState:
		return StateName(v)
	case string:
		return fmt.Sprintf("%q", v)
	default:
		return fmt.Sprint(v)
	}
}

// StateName is the state without its prefix, such as READY.
func StateName(s troupev1.InstanceState) string {
	return strings.TrimPrefix(s.String(), "INSTANCE_STATE_")
}

// Soon is how long an answer may take that waits for nothing.
const Soon = 2 * time.Second
