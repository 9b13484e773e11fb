// Package check is the test framework of the conformance checks. A T runs one check, as a testing.T runs a test.
// An Instance is an instance under test. MemoryService receives the commits of the instances.
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

// ConcurrentCallers is the number of callers in checks of concurrent calls.
const ConcurrentCallers = 16

// These are the time limits of the checks.
const (
	// CheckTimeout bounds one check.
	CheckTimeout = 10 * time.Second
	// medianLimit bounds the median of answers that need no waiting.
	medianLimit = 50 * time.Millisecond
	// promptLimit bounds each answer that needs no waiting. It is longer than medianLimit to allow for the network
	// and for busy machines.
	promptLimit = 250 * time.Millisecond
	// TimingSlack is how far an answer may exceed its deadline, to allow for the network and for busy machines.
	TimingSlack = 500 * time.Millisecond
)

// Check is a rule with the function that tests it.
type Check struct {
	ID          string
	Requirement string
	Title       string
	// Exclusive is true if the check measures short times, so that other checks would disturb it.
	Exclusive bool
	Run       func(t *T)
}

// T is one run of one check. Like a testing.T, it ends the check at the first failed assertion. Therefore only the
// goroutine of the check may call its assertions.
type T struct {
	Ctx    context.Context //nolint:containedctx // a T is used for one check, and this context bounds it
	host   troupev1.ConformanceServiceClient
	Memory *MemoryService

	calls    sync.WaitGroup
	cleanups []func()
	reason   string
}

// Run runs a check and returns why it failed (empty if it passed).
func Run(ctx context.Context, c Check, host troupev1.ConformanceServiceClient, memory *MemoryService) (reason string) {
	ctx, cancel := context.WithTimeout(ctx, CheckTimeout)
	t := &T{Ctx: ctx, host: host, Memory: memory}
	ended := make(chan struct{})
	go func() { // Failf ends this goroutine
		defer close(ended)
		c.Run(t)
	}()
	<-ended
	cancel()
	t.calls.Wait()
	for _, drop := range slices.Backward(t.cleanups) {
		drop()
	}
	return t.reason
}

// Failf fails the check and ends it. The reason is joined into one line.
func (t *T) Failf(format string, args ...any) {
	t.reason = strings.Join(strings.Fields(fmt.Sprintf(format, args...)), " ")
	if errors.Is(t.Ctx.Err(), context.DeadlineExceeded) {
		t.reason += fmt.Sprintf(" (the check ran out of its %s)", CheckTimeout)
	}
	runtime.Goexit()
}

// NoError fails the check if the call returned an error.
func (t *T) NoError(what string, err error) {
	if err != nil {
		t.Failf("%s: expected OK, actual %s", what, FormatError(err))
	}
}

// ErrorHasMode fails the check unless err has one of the modes, the gRPC code of that mode, and the details that
// identify the mode.
func (t *T) ErrorHasMode(what string, err error, modes ...failure.Mode) {
	_ = t.FailureWithMode(what, err, modes...)
}

// FailureWithMode checks err as ErrorHasMode does, and returns the failure in it.
func (t *T) FailureWithMode(what string, err error, modes ...failure.Mode) *failure.Error {
	want := joinReasons(modes)
	if err == nil {
		t.Failf("%s: expected %s, actual OK", what, want)
	}
	e := ParseError(err)
	if !slices.Contains(modes, e.Mode) {
		t.Failf("%s: expected %s, actual %s", what, want, FormatError(err))
	}
	if e.Cause != nil {
		t.Failf("%s: expected %s with a troupe.v1.Failure among its details, actual a bare status %s", what, want, codeFromError(err))
	}
	if expected := codeFromError(grpcfailure.ToStatus(failure.New(e.Mode, "", ""))); codeFromError(err) != expected {
		t.Failf("%s: expected %s with the code %s, actual the code %s", what, e.Mode.Reason(), expected, codeFromError(err))
	}
	return e
}

// Error fails the check unless the call returned an error, with any mode.
func (t *T) Error(what string, err error) {
	if err == nil {
		t.Failf("%s: expected an error, actual OK", what)
	}
}

// True fails the check unless holds is true. The report shows expected and actual.
func (t *T) True(holds bool, what string, expected, actual any) {
	if !holds {
		t.Failf("%s: expected %v, actual %v", what, expected, actual)
	}
}

// Equal fails the check unless the two values are equal.
func Equal[V comparable](t *T, what string, expected, actual V) {
	if expected != actual {
		t.Failf("%s: expected %v, actual %v", what, FormatValue(expected), FormatValue(actual))
	}
}

// AnswersPromptly fails the check unless answers that need no waiting are fast. Of ten answers, half must arrive
// within medianLimit and all within promptLimit. ask returns how long one answer took. There are several rounds,
// because the machine may be busy for a moment. A slow worker fails in each round.
func (t *T) AnswersPromptly(what string, ask func() time.Duration) {
	const rounds, answers = 3, 10
	var why string
	for range rounds {
		var took []time.Duration
		for len(took) < answers && (len(took) == 0 || took[len(took)-1] <= promptLimit) {
			took = append(took, ask())
		}
		last := took[len(took)-1]
		slices.Sort(took)
		switch median := took[len(took)/2]; {
		case last > promptLimit:
			why = fmt.Sprintf("expected within %s, actual %s", promptLimit, last.Round(time.Millisecond))
		case median > medianLimit:
			why = fmt.Sprintf("expected half of them within %s, actual %s", medianLimit, median.Round(time.Millisecond))
		default:
			return
		}
		t.Sleep(TimingSlack)
	}
	t.Failf("%s, in each of %d rounds: %s", what, rounds, why)
}

// Eventually evaluates the condition every few milliseconds until it holds. It fails the check after the limit.
// The condition also returns what it observed, for the report.
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

// Sleep waits for d, or until the check ends. Checks use it for periods in which something must not happen.
func (t *T) Sleep(d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-t.Ctx.Done():
	}
}

// TraceContext returns a context whose calls belong to the trace with this id.
func (t *T) TraceContext(traceID string) context.Context {
	id, err := trace.TraceIDFromHex(traceID)
	t.NoError("trace id", err)
	return trace.ContextWithRemoteSpanContext(t.Ctx, trace.NewSpanContext(trace.SpanContextConfig{
		TraceID: id, SpanID: trace.SpanID{1}, TraceFlags: trace.FlagsSampled, Remote: true,
	}))
}

// Call is an RPC that runs in the background.
type Call[V any] struct {
	done chan struct{}
	// Value, Err and Ended are valid once done is closed.
	Value V
	Err   error
	Began time.Time
	Ended time.Time
}

// Go starts a call in the background. The call must end when the context of the check ends.
func Go[V any](t *T, call func() (V, error)) *Call[V] {
	p := &Call[V]{done: make(chan struct{}), Began: time.Now()}
	t.calls.Go(func() {
		defer close(p.done)
		p.Value, p.Err = call()
		p.Ended = time.Now()
	})
	return p
}

// Wait waits for the call and returns its result. It fails the check after the limit.
func (c *Call[V]) Wait(t *T, what string, limit time.Duration) (V, error) {
	timer := time.NewTimer(limit)
	defer timer.Stop()
	select {
	case <-c.done:
	case <-timer.C:
		t.Failf("%s: expected an answer within %s, actual none", what, limit)
	}
	return c.Value, c.Err
}

// Running reports whether the call has not returned yet.
func (c *Call[V]) Running() bool {
	select {
	case <-c.done:
		return false
	default:
		return true
	}
}

// ParseError returns the failure in the details of a gRPC status.
func ParseError(err error) *failure.Error {
	e, ok := grpcfailure.FromStatus("call", err).(*failure.Error) //nolint:errorlint // the outermost, or none
	if !ok {
		return failure.New(failure.Unknown, "call", "not a gRPC status").Because(err)
	}
	return e
}

// FormatError formats an error for a report.
func FormatError(err error) string {
	e := ParseError(err)
	if e.Cause != nil {
		return err.Error()
	}
	return fmt.Sprintf("%s (%s)", joinReasons([]failure.Mode{e.Mode}), e.Message)
}

// codeFromError returns the gRPC code in the text of an error. It parses the text because only package grpcfailure
// may use gRPC codes.
func codeFromError(err error) string {
	_, text, _ := strings.Cut(err.Error(), "code = ")
	code, _, _ := strings.Cut(text, " ")
	return code
}

func joinReasons(modes []failure.Mode) string {
	var names []string
	for _, m := range modes {
		names = append(names, cmp.Or(m.Reason(), "UNSPECIFIED"))
	}
	return strings.Join(names, " or ")
}

// FormatValue formats a value for a report. It shortens the names of states and quotes strings.
func FormatValue(v any) string {
	switch v := v.(type) {
	case troupev1.InstanceState:
		return StateName(v)
	case string:
		return fmt.Sprintf("%q", v)
	default:
		return fmt.Sprint(v)
	}
}

// StateName returns the name of the state without its prefix, such as READY.
func StateName(s troupev1.InstanceState) string {
	return strings.TrimPrefix(s.String(), "INSTANCE_STATE_")
}

// AnswerLimit bounds an answer that needs no waiting.
const AnswerLimit = 2 * time.Second
