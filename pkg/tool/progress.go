package tool

import (
	"context"
	"time"

	"golang.org/x/time/rate"
)

// MaxProgress is how many reports of a call are told in a second; more are dropped.
const MaxProgress = 10

// Report is how far a call is.
type Report struct {
	Message  string
	Fraction *float64 // that is done, 0 to 1; nil when it is not known
}

// Progress tells those who watch the turn how far a call is: so much of the total, with a
// message for a person, either of which may be left out (LP-29). With a total of 0 or less
// there is no fraction. A message is cut to 240 characters, and nothing is stored; the model
// does not see it. At most MaxProgress a second of a call are told, the rest is dropped, as is
// what comes when the call has ended. It never waits, may be called by any goroutine, and does
// nothing outside of a turn.
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
	if fraction := done / total; total > 0 && fraction >= 0 { // and so is no NaN
		fraction = min(fraction, 1)
		report.Fraction = &fraction
	}
	if (report.Fraction != nil || message != "") && r.limit.Allow() {
		r.tell(report)
	}
}

type reporterKey struct{}

// reporter is who hears of one call.
type reporter struct {
	limit *rate.Limiter
	tell  func(Report)
}

// Reporting returns the context of a call whose Progress goes to tell, which must not wait and
// may be called by several goroutines.
func Reporting(ctx context.Context, tell func(Report)) context.Context {
	return context.WithValue(ctx, reporterKey{}, &reporter{rate.NewLimiter(rate.Every(time.Second/MaxProgress), 1), tell})
}
