package telemetry

import (
	"context"
	"sync"
	"time"

	"go.opentelemetry.io/otel/metric"

	"github.com/troupe-dev/troupe/internal/panics"
)

// Too many panics are maxPanics within panicWindow (guarantees S11).
const (
	maxPanics   = 5
	panicWindow = time.Minute
)

// Panics counts the panics that were contained: each ends the call or the turn that it is of, and
// not the process. A process with many of them in a short time is not to be given more work, until
// a minute has fewer of them again. A nil *Panics counts none. Safe for concurrent use.
type Panics struct {
	count metric.Int64Counter

	mu       sync.Mutex
	last     []time.Time // of those that were in the window when the latest came, at most maxPanics
	watchers []func(tooMany bool)
	calm     *time.Timer
}

func newPanics(meters metric.MeterProvider) *Panics {
	count, err := meters.Meter("troupe/process").Int64Counter("troupe.panics",
		metric.WithDescription("Panics that ended a call or a turn, and not the process."))
	if err != nil { // the name is a constant, so there is none
		return &Panics{}
	}
	return &Panics{count: count}
}

// Note counts err when it was a panic, and nothing else.
func (p *Panics) Note(ctx context.Context, err error) {
	if p == nil || !panics.Is(err) {
		return
	}
	if p.count != nil {
		p.count.Add(ctx, 1)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.last = append(p.last, time.Now())
	if len(p.last) > maxPanics {
		p.last = p.last[len(p.last)-maxPanics:]
	}
	p.look()
}

// Follow calls tell now, and whenever there begin or cease to be too many panics, until stop is
// called. It must not use p.
func (p *Panics) Follow(tell func(tooMany bool)) (stop func()) {
	if p == nil {
		tell(false)
		return func() {}
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.watchers = append(p.watchers, tell)
	at := len(p.watchers) - 1
	tell(p.tooMany())
	return func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.watchers[at] = func(bool) {}
		if p.calm != nil {
			p.calm.Stop()
		}
	}
}

func (p *Panics) tooMany() bool {
	return len(p.last) == maxPanics && time.Since(p.last[0]) < panicWindow
}

// look tells the watchers how it is, and looks again when the first of too many is forgotten.
func (p *Panics) look() {
	tooMany := p.tooMany()
	for _, tell := range p.watchers {
		tell(tooMany)
	}
	if p.calm != nil {
		p.calm.Stop()
	}
	if tooMany {
		p.calm = time.AfterFunc(panicWindow-time.Since(p.last[0]), func() {
			p.mu.Lock()
			defer p.mu.Unlock()
			p.look()
		})
	}
}
