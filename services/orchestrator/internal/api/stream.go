package api

import (
	"cmp"
	"iter"
	"strconv"
	"sync"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/troupe-dev/troupe/internal/panics"
	"github.com/troupe-dev/troupe/pkg/failure"
	troupev1 "github.com/troupe-dev/troupe/pkg/gen/troupe/v1"
)

// These constants limit how far a stream may fall behind its trace, and how long it then waits for the client
// (guarantee F21).
const (
	maxBacklogEvents = 256
	maxBacklogBytes  = 1 << 20
	sendTimeout      = 5 * time.Second
)

// streams sends events to the clients of streaming calls. Safe for concurrent use.
type streams struct {
	sendTimeout time.Duration // how long a full backlog waits for the client (0 means the constant sendTimeout)
	sendersDone sync.WaitGroup
}

// sendAll sends events until there are no more, or until one cannot be sent. It keeps a backlog of events that the
// client has not received yet. It waits for the client when the backlog is full or when all events are in it. If
// the client receives none for sendTimeout, sendAll fails with slow_consumer, which says where to resume.
//
// A blocked send returns only when the call has ended. So sendAll does not wait for it, and the sending
// goroutine ends right after the call.
func (s *streams) sendAll(events iter.Seq2[*troupev1.Event, error], send func(*troupev1.Event) error) error {
	b := newBacklog(cmp.Or(s.sendTimeout, sendTimeout))
	sent := make(chan error, 1)
	s.sendersDone.Go(func() {
		sent <- b.drain(func(e *troupev1.Event) (err error) {
			defer panics.Recover("api.Stream", &err)
			return send(e)
		})
	})
	for e, err := range events {
		if err != nil {
			if !b.finish() {
				return b.streamError()
			}
			return err
		}
		if !b.put(e) {
			return b.streamError()
		}
	}
	if !b.finish() {
		return b.streamError()
	}
	return <-sent
}

// backlog holds the events that one stream still has to send. One goroutine adds events, and another sends them.
type backlog struct {
	stallTimeout time.Duration

	mu           sync.Mutex
	items        []*troupev1.Event
	bytes        int
	lastSequence uint64        // sequence of the last durable event that was sent
	closed       bool          // no more events will be added
	err          error         // why no more events can be sent (nil while they can)
	changed      chan struct{} // closed and replaced at each change
}

func newBacklog(patience time.Duration) *backlog {
	return &backlog{stallTimeout: patience, changed: make(chan struct{})}
}

// notify wakes the goroutines that wait for a change. The caller holds the lock.
func (b *backlog) notify() {
	close(b.changed)
	b.changed = make(chan struct{})
}

// put adds an event. If the backlog is full, put waits until an event was sent. It returns false if that takes too
// long, or if no more events can be sent.
func (b *backlog) put(e *troupev1.Event) bool {
	size := proto.Size(e)
	return b.waitUntil(func() bool {
		room := len(b.items) == 0 || len(b.items) < maxBacklogEvents && b.bytes+size <= maxBacklogBytes
		if room {
			b.items = append(b.items, e)
			b.bytes += size
			b.notify()
		}
		return room
	})
}

// finish stops the adding of events and waits until all were sent. It returns false under the same conditions as
// put.
func (b *backlog) finish() bool {
	b.mu.Lock()
	b.closed = true
	b.notify()
	b.mu.Unlock()
	return b.waitUntil(func() bool { return len(b.items) == 0 })
}

// waitUntil waits until holds returns true. It calls holds with the lock held. It returns false when the client
// received no event for stallTimeout, or when no more events can be sent.
func (b *backlog) waitUntil(holds func() bool) bool {
	var blocked *time.Timer
	for {
		b.mu.Lock()
		broken, changed := b.err != nil, b.changed
		held := !broken && holds()
		b.mu.Unlock()
		if broken || held {
			return held
		}
		if blocked == nil {
			blocked = time.NewTimer(b.stallTimeout)
			defer blocked.Stop()
		}
		select {
		case <-changed:
			blocked.Reset(b.stallTimeout)
		case <-blocked.C:
			return false
		}
	}
}

// streamError returns the error that ends the stream after put or finish returned false. It is slow_consumer
// unless sending failed with another error.
func (b *backlog) streamError() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.err != nil {
		return b.err
	}
	b.err = failure.Newf(failure.SlowConsumer, "api.Stream",
		"the client is %d events behind and took none for %s; watch the trace from resume_after on", len(b.items), b.stallTimeout).
		With("resume_after", strconv.FormatUint(b.lastSequence, 10))
	b.notify()
	return b.err
}

// drain sends events until the backlog is closed and empty.
func (b *backlog) drain(send func(*troupev1.Event) error) error {
	for {
		e, err := b.next()
		if e == nil {
			return err
		}
		err = send(e)
		b.mu.Lock()
		b.items, b.bytes = b.items[1:], b.bytes-proto.Size(e)
		switch {
		case err != nil && b.err == nil:
			b.err = err
		case err == nil && e.GetSequence() > 0:
			b.lastSequence = e.GetSequence()
		}
		b.notify()
		b.mu.Unlock()
	}
}

// next waits for an event to send. The event stays in the backlog until it was sent.
func (b *backlog) next() (*troupev1.Event, error) {
	for {
		b.mu.Lock()
		items, closed, err, changed := b.items, b.closed, b.err, b.changed
		b.mu.Unlock()
		switch {
		case err != nil:
			return nil, err
		case len(items) > 0:
			return items[0], nil
		case closed:
			return nil, nil
		}
		<-changed
	}
}
