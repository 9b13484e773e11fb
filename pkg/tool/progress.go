package tool

import (
	"context"
	"time"

	"golang.org/x/time/rate"
)

// Report describes the progress of a call.
type Report struct {
	Message  string
	Fraction *float64 // done, 0 to 1 (nil if unknown)
}

// Progress tells watchers of the turn how far a call is: how much of the total is done, with a message for a
// person; either may be left out (LP-29). With a total of 0 or less there is no fraction. A message is cut to 240
// characters. Nothing is stored, and the model does not see it. At most MaxProgress reports of a call are sent in
// a second; more are dropped, and so are reports after the call has ended. It never blocks, may be called by any
// goroutine, and does nothing outside of a turn.
//
//	for i, f := range files {
//		tool.Progress(ctx, float64(i), float64(len(files)), "read "+f)
//	}
func Progress(ctx context.Context, done, total float64, message string) {
	r, _ := ctx.Value(reporterKey{}).(*reporter)
	if r == nil {
		return
	}
	report := Report{Message: message}
	if fraction := done / total; total > 0 && fraction >= 0 { // false for NaN too
		fraction = min(fraction, 1)
		report.Fraction = &fraction
	}
	if (report.Fraction != nil || message != "") && r.limiter.Allow() {
		r.send(report)
	}
}

type reporterKey struct{}

// reporter limits and forwards the progress reports of one call.
type reporter struct {
	limiter *rate.Limiter
	send    func(Report)
}

// ContextWithReporter returns a context for a call, in which Progress passes its reports to tell. tell must not
// block and may be called by several goroutines.
func ContextWithReporter(ctx context.Context, tell func(Report)) context.Context {
	return context.WithValue(ctx, reporterKey{}, &reporter{rate.NewLimiter(rate.Every(time.Second/MaxProgress), 1), tell})
}
