package crowd

import (
	"context"
	"errors"
	"io"
	"sync"

	"google.golang.org/grpc"

	troupev1 "github.com/troupe-dev/troupe/pkg/gen/troupe/v1"
	"github.com/troupe-dev/troupe/test/chaos/verify"
)

// tap is a connection to the orchestrator that records every event as it arrives, before the client drops
// repeated ones.
type tap struct {
	grpc.ClientConnInterface
	onEvent func(mark string, e *troupev1.Event)
	onEnd   func(mark string)

	mu      sync.Mutex
	streams []*tapped
	traces  map[string]string // marks by trace
}

func newTap(conn grpc.ClientConnInterface, onEvent func(string, *troupev1.Event), onEnd func(string)) *tap {
	return &tap{ClientConnInterface: conn, onEvent: onEvent, onEnd: onEnd, traces: map[string]string{}}
}

// NewStream implements grpc.ClientConnInterface.
func (t *tap) NewStream(ctx context.Context, desc *grpc.StreamDesc, method string, opts ...grpc.CallOption) (grpc.ClientStream, error) {
	s, err := t.ClientConnInterface.NewStream(ctx, desc, method, opts...)
	if err != nil {
		return nil, err
	}
	return &tapped{ClientStream: s, tap: t}, nil
}

// all returns the streams so far.
func (t *tap) all() []verify.Stream {
	t.mu.Lock()
	defer t.mu.Unlock()
	var all []verify.Stream
	for _, s := range t.streams {
		all = append(all, s.Stream)
	}
	return all
}

// tapped is one stream. The mutex of its tap guards it.
type tapped struct {
	grpc.ClientStream
	verify.Stream
	tap *tap
}

// SendMsg implements grpc.ClientStream. The request says which turn the stream belongs to.
func (s *tapped) SendMsg(m any) error {
	s.tap.mu.Lock()
	switch req := m.(type) {
	case *troupev1.OrchestrateRequest:
		s.Mark = Mark(req.GetSessionId(), req.GetRequestId())
		s.First = s.tap.first(s.Mark)
	case *troupev1.WatchTraceRequest:
		s.Mark, s.After = s.tap.traces[req.GetTraceId()], req.GetAfterSequence()
	}
	s.tap.streams = append(s.tap.streams, s)
	s.tap.mu.Unlock()
	return s.ClientStream.SendMsg(m)
}

// first reports whether no stream of the mark was opened before. If another stream was opened and has received
// nothing yet, the order is unknown and the result is false.
func (t *tap) first(mark string) bool {
	first := true
	for _, other := range t.streams {
		if other.Mark == mark {
			first = false
			other.First = other.First && len(other.Events) > 0
		}
	}
	return first
}

// RecvMsg implements grpc.ClientStream.
func (s *tapped) RecvMsg(m any) error {
	err := s.ClientStream.RecvMsg(m)
	carrier, ok := m.(interface{ GetEvent() *troupev1.Event })
	if !ok {
		return err
	}
	s.tap.mu.Lock()
	if err == nil {
		s.Events = append(s.Events, carrier.GetEvent())
		s.tap.traces[carrier.GetEvent().GetTraceId()] = s.Mark
	}
	s.Ended = errors.Is(err, io.EOF)
	s.tap.mu.Unlock()
	if err != nil {
		s.tap.onEnd(s.Mark)
		return err
	}
	s.tap.onEvent(s.Mark, carrier.GetEvent())
	return nil
}
