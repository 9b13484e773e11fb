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

// What a stream may be behind its trace, and for how long one event may be on its way once
// it is (guarantee F21).
const (
	maxBehind      = 256
	maxBehindBytes = 1 << 20
	sendTime       = 5 * time.Second
)

// streams are those that carry events to clients. Safe for concurrent use.
type streams struct {
	sendTime time.Duration // 0: sendTime
	senders  sync.WaitGroup
}

// send sends events until there are no more, or one cannot be sent. Events that the client
// does not take yet are held back; when there are too many of them, or no more to come, and
// it takes nothing for a while, the stream ends with slow_consumer, which says where to
// resume.
//
// A Send that is blocked returns only once the call has ended, so it is not waited for here:
// its goroutine ends right behind the call.
func (s *streams) send(events iter.Seq2[*troupev1.Event, error], send func(*troupev1.Event) error) error {
	b := newBacklog(cmp.Or(s.sendTime, sendTime))
	sent := make(chan error, 1)
	s.senders.Go(func() {
		sent <- b.drain(func(e *troupev1.Event) (err error) {
			defer panics.Recover("api.Stream", &err)
			return send(e)
		})
	})
	for e, err := range events {
		if err != nil {
			if !b.end() {
				return b.refusal()
			}
			return err
		}
		if !b.put(e) {
			return b.refusal()
		}
	}
	if !b.end() {
		return b.refusal()
	}
	return <-sent
}

// backlog is what one stream has still to send. One goroutine puts, another drains.
type backlog struct {
	patience time.Duration

	mu      sync.Mutex
	items   []*troupev1.Event
	bytes   int
	last    uint64        // sequence of the last durable event that was sent
	closed  bool          // nothing more will be put
	err     error         // why no more is sent
	changed chan struct{} // closed and replaced at each change
}

func newBacklog(patience time.Duration) *backlog {
	return &backlog{patience: patience, changed: make(chan struct{})}
}

// notify is called with the lock held.
func (b *backlog) notify() {
	close(b.changed)
	b.changed = make(chan struct{})
}

// put adds an event. When there is no room it waits until something was sent, and is false
// when that takes too long, or no more can be sent.
func (b *backlog) put(e *troupev1.Event) bool {
	size := proto.Size(e)
	return b.until(func() bool {
		room := len(b.items) == 0 || len(b.items) < maxBehind && b.bytes+size <= maxBehindBytes
		if room {
			b.items = append(b.items, e)
			b.bytes += size
			b.notify()
		}
		return room
	})
}

// end says that nothing more will be put, and waits until all was sent, as put does for
// room.
func (b *backlog) end() bool {
	b.mu.Lock()
	b.closed = true
	b.notify()
	b.mu.Unlock()
	return b.until(func() bool { return len(b.items) == 0 })
}

// until waits until something holds, which is looked at with the lock held. It is false when
// nothing was sent for as long as the patience, or no more can be sent.
func (b *backlog) until(holds func() bool) bool {
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
			blocked = time.NewTimer(b.patience)
			defer blocked.Stop()
		}
		select {
		case <-changed:
			blocked.Reset(b.patience)
		case <-blocked.C:
			return false
		}
	}
}

// refusal ends a stream to which no more can be put.
func (b *backlog) refusal() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.err != nil {
		return b.err
	}
	b.err = failure.Newf(failure.SlowConsumer, "api.Stream",
		"the client is %d events behind and took none for %s; watch the trace from resume_after on", len(b.items), b.patience).
		With("resume_after", strconv.FormatUint(b.last, 10))
	b.notify()
	return b.err
}

// drain sends what is put until the end.
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
			b.last = e.GetSequence()
		}
		b.notify()
		b.mu.Unlock()
	}
}

// next waits for an event to send. It stays in the backlog until it was sent.
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
