package telemetry

import (
	"context"
	"sync"
	"time"

	"go.opentelemetry.io/otel/metric"

	"github.com/troupe-dev/troupe/internal/panics"
)

// maxPanics within panicWindow is too many (guarantee S11).
const (
	maxPanics   = 5
	panicWindow = time.Minute
)

// Panics counts recovered panics. Each of them ended a call or a turn, but not the process. After too many panics
// in a short time the process becomes unready, until panicWindow contains fewer of them. A nil *Panics counts
// nothing. It is safe for concurrent use.
type Panics struct {
	count metric.Int64Counter

	mu           sync.Mutex
	recentTimes  []time.Time // times of the latest panics, at most maxPanics of them
	watchers     []func(tooMany bool)
	recheckTimer *time.Timer
}

func newPanics(meters metric.MeterProvider) *Panics {
	count, err := meters.Meter("troupe/process").Int64Counter("troupe.panics",
		metric.WithDescription("Panics that ended a call or a turn, and not the process."))
	if err != nil { // impossible, because the name is a valid constant
		return &Panics{}
	}
	return &Panics{count: count}
}

// Record counts err if it comes from a panic.
func (p *Panics) Record(ctx context.Context, err error) {
	if p == nil || !panics.Is(err) {
		return
	}
	if p.count != nil {
		p.count.Add(ctx, 1)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.recentTimes = append(p.recentTimes, time.Now())
	if len(p.recentTimes) > maxPanics {
		p.recentTimes = p.recentTimes[len(p.recentTimes)-maxPanics:]
	}
	p.notify()
}

// OnChange calls tell with the current state, and again after each panic and when there are no longer too many. It
// stops when stop is called. tell must not use p.
func (p *Panics) OnChange(tell func(tooMany bool)) (stop func()) {
	if p == nil {
		tell(false)
		return func() {}
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.watchers = append(p.watchers, tell)
	at := len(p.watchers) - 1
	tell(p.isTooMany())
	return func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.watchers[at] = func(bool) {}
		if p.recheckTimer != nil {
			p.recheckTimer.Stop()
		}
	}
}

func (p *Panics) isTooMany() bool {
	return len(p.recentTimes) == maxPanics && time.Since(p.recentTimes[0]) < panicWindow
}

// notify calls the watchers with the current state. If there are too many panics, it calls them again when the
// oldest one leaves the window.
func (p *Panics) notify() {
	tooMany := p.isTooMany()
	for _, tell := range p.watchers {
		tell(tooMany)
	}
	if p.recheckTimer != nil {
		p.recheckTimer.Stop()
	}
	if tooMany {
		p.recheckTimer = time.AfterFunc(panicWindow-time.Since(p.recentTimes[0]), func() {
			p.mu.Lock()
			defer p.mu.Unlock()
			p.notify()
		})
	}
}
