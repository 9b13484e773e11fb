package trace

import (
	"context"
	"iter"

	troupev1 "github.com/troupe-dev/troupe/pkg/gen/troupe/v1"
)

// Watch yields the events after the given sequence, as Traces.Watch does, and ephemeral events as they are
// appended. A slow consumer does not delay the others.
func (l *Log) Watch(ctx context.Context, after uint64) iter.Seq2[*troupev1.Event, error] {
	return func(yield func(*troupev1.Event, error) bool) {
		l.mu.Lock()
		next, err := l.history.indexAfter(after)
		l.mu.Unlock()
		for err == nil {
			fresh, changed, done := l.visibleEvents(next)
			for _, e := range fresh {
				if !yield(e, nil) {
					return
				}
			}
			next += len(fresh)
			switch {
			case done:
				if err = l.rejectedError(); err == nil {
					return
				}
			case len(fresh) == 0:
				select {
				case <-changed:
				case <-ctx.Done():
					err = ctx.Err()
				}
			}
		}
		yield(nil, err)
	}
}

// visibleEvents returns the visible events from an index on, and a channel that is closed at the next change. It
// also reports whether no more events will follow.
func (l *Log) visibleEvents(next int) (fresh []*troupev1.Event, changed <-chan struct{}, done bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	h := &l.history
	if next < h.visibleCount {
		fresh = h.events[next:h.visibleCount:h.visibleCount]
	}
	complete := l.ended && h.visibleCount == len(h.events)
	return fresh, l.changed, complete || l.writer.err != nil
}
