package telemetry

import (
	"context"
	"sync"
	"time"

	"go.opentelemetry.io/otel/metric"

	"github.com/troupe-dev/troupe/internal/panics"
)

// maxPanics within panicWindow is too many (guarantees S11).
const (
	maxPanics   = 5
	panicWindow = time.Minute
)

// Panics counts recovered panics. Each of them ended a call or a turn, but not the process. After too many panics
// in a short time the process becomes unready, until panicWindow contains fewer of them. A nil *Panics counts
// nothing. It is safe for concurrent use.
type Panics struct {
	count metric.Int64Counter

	mu       sync.Mutex
	recent   []time.Time // times of the latest panics, at most maxPanics of them
	watchers []func(tooMany bool)
	recheck  *time.Timer
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
func (p *Panics) Note(ctx context.Context, err error) {
	if p == nil || !panics.Is(err) {
		return
	}
	if p.count != nil {
		p.count.Add(ctx, 1)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.recent = append(p.recent, time.Now())
	if len(p.recent) > maxPanics {
		p.recent = p.recent[len(p.recent)-maxPanics:]
	}
	p.notify()
}

// OnChange calls tell with the current state, and again after each panic and when there are no longer too many. It
// stops when stop is called. tell must not use p.
func (p *Panics) Follow(tell func(tooMany bool)) (stop func()) {
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
		if p.recheck != nil {
			p.recheck.Stop()
		}
	}
}

func (p *Panics) isTooMany() bool {
	return len(p.recent) == maxPanics && time.Since(p.recent[0]) < panicWindow
}

// notify calls the watchers with the current state. If there are too many panics, it calls them again when the
// oldest one leaves the window.
func (p *Panics) notify() {
	tooMany := p.isTooMany()
	for _, tell := range p.watchers {
		tell(tooMany)
	}
	if p.recheck != nil {
		p.recheck.Stop()
	}
	if tooMany {
		p.recheck = time.AfterFunc(panicWindow-time.Since(p.recent[0]), func() {
			p.mu.Lock()
			defer p.mu.Unlock()
			p.notify()
		})
	}
}
