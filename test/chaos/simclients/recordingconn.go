package simclients

import (
	"context"
	"errors"
	"io"
	"sync"

	"google.golang.org/grpc"

	troupev1 "github.com/troupe-dev/troupe/pkg/gen/troupe/v1"
	"github.com/troupe-dev/troupe/test/chaos/verify"
)

// recordingConn is a connection to the orchestrator. It records every event as it arrives, before the client
// drops repeated ones.
type recordingConn struct {
	grpc.ClientConnInterface
	onEvent func(mark string, e *troupev1.Event)
	onEnd   func(mark string)

	mu      sync.Mutex
	streams []*recordingStream
	traces  map[string]string // marks by trace
}

func newRecordingConn(conn grpc.ClientConnInterface, onEvent func(string, *troupev1.Event), onEnd func(string)) *recordingConn {
	return &recordingConn{ClientConnInterface: conn, onEvent: onEvent, onEnd: onEnd, traces: map[string]string{}}
}

// NewStream implements grpc.ClientConnInterface.
func (r *recordingConn) NewStream(ctx context.Context, desc *grpc.StreamDesc, method string, opts ...grpc.CallOption) (grpc.ClientStream, error) {
	s, err := r.ClientConnInterface.NewStream(ctx, desc, method, opts...)
	if err != nil {
		return nil, err
	}
	return &recordingStream{ClientStream: s, conn: r}, nil
}

// allStreams returns all streams that were opened so far.
func (r *recordingConn) allStreams() []verify.Stream {
	r.mu.Lock()
	defer r.mu.Unlock()
	var all []verify.Stream
	for _, s := range r.streams {
		all = append(all, s.Stream)
	}
	return all
}

// recordingStream is one stream of a recordingConn, whose mutex guards it.
type recordingStream struct {
	grpc.ClientStream
	verify.Stream
	conn *recordingConn
}

// SendMsg implements grpc.ClientStream. It reads from the request to which turn the stream belongs.
func (s *recordingStream) SendMsg(m any) error {
	s.conn.mu.Lock()
	switch req := m.(type) {
	case *troupev1.OrchestrateRequest:
		s.Mark = RequestMark(req.GetSessionId(), req.GetRequestId())
		s.IsFirst = s.conn.isFirstStream(s.Mark)
	case *troupev1.WatchTraceRequest:
		s.Mark, s.After = s.conn.traces[req.GetTraceId()], req.GetAfterSequence()
	}
	s.conn.streams = append(s.conn.streams, s)
	s.conn.mu.Unlock()
	return s.ClientStream.SendMsg(m)
}

// isFirstStream reports whether no other stream has this mark. If another one has received nothing yet, their
// order is unknown, so neither counts as the first.
func (r *recordingConn) isFirstStream(mark string) bool {
	first := true
	for _, other := range r.streams {
		if other.Mark == mark {
			first = false
			other.IsFirst = other.IsFirst && len(other.Events) > 0
		}
	}
	return first
}

// RecvMsg implements grpc.ClientStream.
func (s *recordingStream) RecvMsg(m any) error {
	err := s.ClientStream.RecvMsg(m)
	carrier, ok := m.(interface{ GetEvent() *troupev1.Event })
	if !ok {
		return err
	}
	s.conn.mu.Lock()
	if err == nil {
		s.Events = append(s.Events, carrier.GetEvent())
		s.conn.traces[carrier.GetEvent().GetTraceId()] = s.Mark
	}
	s.EndedWithoutError = errors.Is(err, io.EOF)
	s.conn.mu.Unlock()
	if err != nil {
		s.conn.onEnd(s.Mark)
		return err
	}
	s.conn.onEvent(s.Mark, carrier.GetEvent())
	return nil
}
