package client_test

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/testing/protocmp"

	"github.com/troupe-dev/troupe/internal/rpc"
	"github.com/troupe-dev/troupe/internal/telemetry"
	"github.com/troupe-dev/troupe/pkg/client"
	"github.com/troupe-dev/troupe/pkg/failure"
	troupev1 "github.com/troupe-dev/troupe/pkg/gen/troupe/v1"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const traceID = "0af7651916cd43dd8448eb211c80319c"

// lastSequence is the sequence of the turn result in the trace of fakeOrchestrator.
const lastSequence = 6

// allEvents returns the events of the trace: six stored events, each except the first preceded by a text delta.
func allEvents() (all []*troupev1.Event) {
	for s := uint64(1); s <= lastSequence; s++ {
		if s > 1 {
			all = append(all, &troupev1.Event{TraceId: traceID, Payload: &troupev1.Event_TextDelta{TextDelta: &troupev1.TextDelta{Text: "…"}}})
		}
		e := &troupev1.Event{TraceId: traceID, Sequence: s, Payload: &troupev1.Event_Warning{Warning: &troupev1.Warning{Message: fmt.Sprint(s)}}}
		if s == lastSequence {
			e.Payload = &troupev1.Event_TurnResult{TurnResult: &troupev1.TurnResult{Text: "answer"}}
		}
		all = append(all, e)
	}
	return all
}

// fakeOrchestrator sends the events of one trace. Its script decides when a stream breaks.
type fakeOrchestrator struct {
	troupev1.UnimplementedOrchestratorServiceServer
	listener *cutListener
	// script returns after how many items a stream breaks, and with which error. Streams are numbered from 1. A
	// negative number of items means that the stream does not break.
	script func(stream int) (items int, with error)

	mu       sync.Mutex
	requests []*troupev1.OrchestrateRequest
	watches  []uint64 // after_sequence of each WatchTrace call
	streams  int
}

func (o *fakeOrchestrator) Orchestrate(req *troupev1.OrchestrateRequest, stream troupev1.OrchestratorService_OrchestrateServer) error {
	o.mu.Lock()
	o.requests = append(o.requests, req)
	o.mu.Unlock()
	return o.sendEvents(stream.Context(), allEvents(), func(e *troupev1.Event) error {
		return stream.Send(&troupev1.OrchestrateResponse{Event: e})
	})
}

func (o *fakeOrchestrator) WatchTrace(req *troupev1.WatchTraceRequest, stream troupev1.OrchestratorService_WatchTraceServer) error {
	o.mu.Lock()
	o.watches = append(o.watches, req.GetAfterSequence())
	o.mu.Unlock()
	var left []*troupev1.Event
	for i, e := range allEvents() {
		if e.GetSequence() == req.GetAfterSequence() {
			left = allEvents()[i+1:]
		}
	}
	if req.GetAfterSequence() == 0 {
		left = allEvents()
	}
	return o.sendEvents(stream.Context(), left, func(e *troupev1.Event) error {
		return stream.Send(&troupev1.WatchTraceResponse{Event: e})
	})
}

func (o *fakeOrchestrator) sendEvents(ctx context.Context, events []*troupev1.Event, send func(*troupev1.Event) error) error {
	o.mu.Lock()
	o.streams++
	items, with := o.script(o.streams)
	o.mu.Unlock()
	for i, e := range events {
		if i == items {
			break
		}
		if err := send(e); err != nil {
			return err
		}
	}
	if items < 0 {
		return nil
	}
	switch {
	case errors.Is(with, errCut):
		if items == 0 {
			o.listener.closeConnections()
		}
		<-ctx.Done()
	case errors.Is(with, errHang):
		<-ctx.Done()
	}
	return with
}

// These errors in a script end a stream in another way than with an error of the mesh.
var (
	errCut  = errors.New("the connection is cut after the items have arrived")
	errHang = errors.New("the stream stays open until the caller stops")
)

// streamCount returns how many streams were opened.
func (o *fakeOrchestrator) streamCount() int {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.streams
}

// neverBreak is a script that breaks no stream.
func neverBreak(int) (int, error) { return -1, nil }

// serveOrchestrator serves a fakeOrchestrator until the test ends and returns it with a client.
func serveOrchestrator(t *testing.T, script func(int) (int, error)) (*fakeOrchestrator, *client.Client) {
	t.Helper()
	lis, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	conn, err := rpc.Dial(lis.Addr().String(), telemetry.Discard())
	require.NoError(t, err)
	return serveOrchestratorAt(t, lis, conn, script)
}

func serveOrchestratorAt(t *testing.T, lis net.Listener, conn *grpc.ClientConn, script func(int) (int, error)) (*fakeOrchestrator, *client.Client) {
	t.Helper()
	o := &fakeOrchestrator{listener: &cutListener{Listener: lis}, script: script}
	server, err := rpc.NewServer(telemetry.Discard(), rpc.Config{})
	require.NoError(t, err)
	troupev1.RegisterOrchestratorServiceServer(server, o)
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	ended := make(chan error, 1)
	go func() { ended <- server.ProcessPart(o.listener, 0).Run(ctx, func() {}) }()
	t.Cleanup(func() {
		require.NoError(t, conn.Close())
		cancel()
		require.NoError(t, <-ended)
	})
	return o, client.New(conn)
}

// cutListener is a net.Listener that can close all its connections.
type cutListener struct {
	net.Listener
	mu   sync.Mutex
	open []net.Conn
}

func (c *cutListener) Accept() (net.Conn, error) {
	conn, err := c.Listener.Accept()
	c.mu.Lock()
	defer c.mu.Unlock()
	if err == nil {
		c.open = append(c.open, conn)
	}
	return conn, err
}

func (c *cutListener) closeConnections() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, conn := range c.open {
		_ = conn.Close()
	}
	c.open = nil
}

// newRequest returns a request without ids, so that the client generates them.
func newRequest() *troupev1.OrchestrateRequest {
	return &troupev1.OrchestrateRequest{Input: &troupev1.OrchestrateRequest_Text{Text: "What may an agent write?"}}
}

// collectEvents reads a stream to its end, which may be an error, and returns the stored events. It calls arrived
// after each item.
func collectEvents(events iter.Seq2[*troupev1.Event, error], arrived ...func()) (stored []*troupev1.Event, failed error) {
	for e, err := range events {
		for _, tell := range arrived {
			tell()
		}
		if err != nil {
			return stored, err
		}
		if e.GetSequence() > 0 {
			stored = append(stored, e)
		}
	}
	return stored, nil
}

// requireComplete checks that every stored event after the given sequence arrived once and in order.
func requireComplete(t *testing.T, got []*troupev1.Event, after uint64) {
	t.Helper()
	var want []*troupev1.Event
	for _, e := range allEvents() {
		if e.GetSequence() > after {
			want = append(want, e)
		}
	}
	require.Empty(t, cmp.Diff(want, got, protocmp.Transform()))
}

func TestTurn_YieldsTheWholeTrace(t *testing.T) {
	o, c := serveOrchestrator(t, neverBreak)
	var all []*troupev1.Event
	for e, err := range c.Turn(t.Context(), newRequest()) {
		require.NoError(t, err)
		all = append(all, e)
	}
	require.Empty(t, cmp.Diff(allEvents(), all, protocmp.Transform()), "text deltas too")
	require.Equal(t, 1, o.streamCount())
}

// The client resumes a stream that breaks at any item and in any way. It loses no stored event and yields none
// twice.
func TestTurn_ResumesBrokenStream(t *testing.T) {
	breaks := map[string]error{
		"cut":      errCut,
		"status":   failure.New(failure.SystemNetwork, "test", "the orchestrator is stopping"),
		"rejected": failure.New(failure.SystemNetwork, "test", "not yet"),
		"slow":     failure.New(failure.SlowConsumer, "test", "the client is behind").With("resume_after", "3"),
		"ended":    nil,
	}
	for how, with := range breaks {
		for items := range len(allEvents()) {
			t.Run(fmt.Sprintf("%s after %d items", how, items), func(t *testing.T) {
				o, c := serveOrchestrator(t, func(stream int) (int, error) {
					switch {
					case stream == 1:
						return items, with
					case stream == 2 && how == "rejected":
						return 0, with
					default:
						return -1, nil
					}
				})
				left := items
				got, err := collectEvents(c.Turn(t.Context(), newRequest()), func() {
					if left--; left == 0 && errors.Is(with, errCut) {
						o.listener.closeConnections()
					}
				})
				require.NoError(t, err)
				requireComplete(t, got, 0)
				for _, r := range o.requests { // until the client knows the trace, it repeats the request
					require.NotEmpty(t, r.GetSessionId())
					require.Equal(t, o.requests[0].GetSessionId(), r.GetSessionId())
					require.Equal(t, o.requests[0].GetRequestId(), r.GetRequestId())
				}
				require.Equal(t, items == 0, len(o.requests) > 1)
			})
		}
	}
}

func TestTurn_ResumesWhileThereIsProgress(t *testing.T) {
	o, c := serveOrchestrator(t, func(int) (int, error) { return 2, errCut }) // each stream sends one stored event
	items := 0
	got, err := collectEvents(c.Turn(t.Context(), newRequest()), func() {
		if items++; items%2 == 0 {
			o.listener.closeConnections()
		}
	})
	require.NoError(t, err)
	requireComplete(t, got, 0)
	require.Equal(t, []uint64{1, 2, 3, 4, 5}, o.watches)
}

// Watching a trace from its last event yields no events and no error.
func TestWatch_EndsAfterLastEvent(t *testing.T) {
	o, c := serveOrchestrator(t, neverBreak)
	got, err := collectEvents(c.Watch(t.Context(), traceID, lastSequence))
	require.NoError(t, err)
	require.Empty(t, got)
	require.Equal(t, 1, o.streamCount())
}

func TestTurn_GivesUpWithoutProgress(t *testing.T) {
	away := failure.New(failure.SystemNetwork, "test", "the store is away")
	for name, items := range map[string]int{"from the start": 0, "in the middle": 3} {
		t.Run(name, func(t *testing.T) {
			o, c := serveOrchestrator(t, func(stream int) (int, error) {
				if stream == 1 {
					return items, away
				}
				return 0, away
			})
			c.SetPatience(shortPatience)
			began := time.Now()
			got, err := collectEvents(c.Turn(t.Context(), newRequest()))
			require.Equal(t, failure.SystemNetwork, failure.ModeOf(err), "%v", err)
			require.ErrorContains(t, err, "the store is away")
			require.Len(t, got, min(items, 2))
			require.Greater(t, o.streamCount(), 1)
			require.GreaterOrEqual(t, time.Since(began), shortPatience)
		})
	}
}

// A stream that ends normally but without a turn result is an error.
func TestTurn_WithoutAResultIsAnError(t *testing.T) {
	_, c := serveOrchestrator(t, func(stream int) (int, error) {
		if stream == 1 {
			return 3, nil
		}
		return 0, nil
	})
	c.SetPatience(shortPatience)
	_, err := collectEvents(c.Turn(t.Context(), newRequest()))
	require.Equal(t, failure.SystemNetwork, failure.ModeOf(err), "%v", err)
	require.ErrorContains(t, err, "the stream ended before the turn did")
}

func TestTurn_DoesNotRetryRejectedRequest(t *testing.T) {
	for _, mode := range []failure.Mode{
		failure.SessionBusy, failure.KeyReused, failure.NotFound, failure.UserInvalidInput,
		failure.SessionFull, failure.SystemTimeout, failure.Unknown,
	} {
		t.Run(string(mode), func(t *testing.T) {
			o, c := serveOrchestrator(t, func(int) (int, error) { return 0, failure.New(mode, "test", "no").With("trace_id", traceID) })
			got, err := collectEvents(c.Turn(t.Context(), newRequest()))
			require.Empty(t, got)
			require.Equal(t, mode, failure.ModeOf(err), "%v", err)
			require.ErrorContains(t, err, "no")
			require.Equal(t, 1, o.streamCount())
		})
	}
}

func TestTurn_KeepsIDsOfCaller(t *testing.T) {
	o, c := serveOrchestrator(t, neverBreak)
	req := newRequest()
	req.SessionId, req.RequestId = "s1", "r1"
	_, err := collectEvents(c.Turn(t.Context(), req))
	require.NoError(t, err)
	require.Equal(t, "s1", o.requests[0].GetSessionId())
	require.Equal(t, "r1", o.requests[0].GetRequestId())
}

func TestWatch_StartsAfterAnySequence(t *testing.T) {
	for after := range uint64(lastSequence) {
		o, c := serveOrchestrator(t, func(stream int) (int, error) {
			if stream == 1 {
				return 0, errCut
			}
			return -1, nil
		})
		got, err := collectEvents(c.Watch(t.Context(), traceID, after))
		require.NoError(t, err)
		requireComplete(t, got, after)
		require.Equal(t, after, o.watches[0])
	}
}

// A turn stops when its consumer stops reading or its context ends, even if the server keeps the stream open.
func TestTurn_StopsWithConsumerOrContext(t *testing.T) {
	o, c := serveOrchestrator(t, func(int) (int, error) { return 1, errHang })
	for e, err := range c.Turn(t.Context(), newRequest()) {
		require.NoError(t, err)
		require.EqualValues(t, 1, e.GetSequence())
		break
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var ended error
	for _, err := range c.Turn(ctx, newRequest()) {
		cancel()
		ended = err
	}
	require.Equal(t, failure.UserCancelled, failure.ModeOf(ended), "%v", ended)
	require.Equal(t, 2, o.streamCount())
}
