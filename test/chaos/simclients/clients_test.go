package simclients

import (
	"context"
	"io"
	"testing"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"

	troupev1 "github.com/troupe-dev/troupe/pkg/gen/troupe/v1"
	"github.com/troupe-dev/troupe/test/chaos/history"
	"github.com/troupe-dev/troupe/test/chaos/verify"
)

func message(sequence int64, role troupev1.Role, text string) *troupev1.Message {
	return &troupev1.Message{Sequence: sequence, Role: role, Parts: []*troupev1.Part{{Content: &troupev1.Part_Text{Text: text}}}}
}

// A loaded session contains only complete turns, because model M1 compares neither open nor failed turns.
func TestRunRecord_LoadResultHasOnlyCompleteTurns(t *testing.T) {
	user, agent := troupev1.Role_ROLE_USER, troupev1.Role_ROLE_ASSISTANT
	r := &runRecord{requests: map[string]request{"one": {steps: 1}, "two": {steps: 2}, "failed": {steps: 1}, "open": {steps: 2}}}
	partial := message(7, agent, "some")
	partial.Partial = true
	loaded := r.toLoadResult([]*troupev1.Message{
		message(1, user, "one"), message(2, agent, "a"),
		message(3, user, "two"), message(4, agent, "b"), message(5, agent, "c"),
		message(6, user, "failed"), partial,
		message(8, user, "open"), message(9, agent, "d"),
	})
	require.Equal(t, history.LoadResult{Sequence: 5, Hash: history.ExtendHash(history.ExtendHash(0, "one", 2), "two", 5)}, loaded)
}

// cannedConn is a connection whose streams return the given events.
type cannedConn struct {
	grpc.ClientConnInterface
	events []*troupev1.Event
}

func (c *cannedConn) NewStream(context.Context, *grpc.StreamDesc, string, ...grpc.CallOption) (grpc.ClientStream, error) {
	return &cannedStream{remaining: c.events}, nil
}

type cannedStream struct {
	grpc.ClientStream
	remaining []*troupev1.Event
}

func (s *cannedStream) SendMsg(any) error { return nil }

func (s *cannedStream) RecvMsg(m any) error {
	if len(s.remaining) == 0 {
		return io.EOF
	}
	switch r := m.(type) {
	case *troupev1.OrchestrateResponse:
		r.Event = s.remaining[0]
	case *troupev1.WatchTraceResponse:
		r.Event = s.remaining[0]
	}
	s.remaining = s.remaining[1:]
	return nil
}

func TestRecordingConn_RecordsReceivedEvents(t *testing.T) {
	events := []*troupev1.Event{{Sequence: 1, TraceId: "t"}, {Sequence: 1, TraceId: "t"}}
	seen, left := 0, 0
	tap := newRecordingConn(&cannedConn{events: events}, func(string, *troupev1.Event) { seen++ }, func(string) { left++ })
	open := func(req, resp any, reads int) {
		s, err := tap.NewStream(t.Context(), nil, "")
		require.NoError(t, err)
		require.NoError(t, s.SendMsg(req))
		for range reads {
			_ = s.RecvMsg(resp)
		}
	}
	orchestrate := &troupev1.OrchestrateRequest{SessionId: "s", RequestId: "r"}
	open(orchestrate, &troupev1.OrchestrateResponse{}, 3)
	open(&troupev1.WatchTraceRequest{TraceId: "t", AfterSequence: 1}, &troupev1.WatchTraceResponse{}, 1)
	open(orchestrate, &troupev1.OrchestrateResponse{}, 0)
	require.Equal(t, []verify.Stream{
		{Mark: "s/r", IsFirst: true, EndedWithoutError: true, Events: events}, // a repeat, which the client would drop
		{Mark: "s/r", After: 1, Events: events[:1]},
		{Mark: "s/r"},
	}, tap.allStreams())
	require.Equal(t, 3, seen)
	require.Equal(t, 1, left)

	other := &troupev1.OrchestrateRequest{SessionId: "s", RequestId: "burst"}
	open(other, &troupev1.OrchestrateResponse{}, 0)
	open(other, &troupev1.OrchestrateResponse{}, 0)
	for _, s := range tap.allStreams()[3:] {
		require.False(t, s.IsFirst, "their order is unknown")
	}
}
