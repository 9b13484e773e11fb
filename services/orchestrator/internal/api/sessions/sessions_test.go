package sessions_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/stretchr/testify/require"
	"go.uber.org/zap"

	"github.com/troupe-dev/troupe/internal/grpcfailure"
	"github.com/troupe-dev/troupe/internal/identity"
	"github.com/troupe-dev/troupe/internal/redisconn"
	"github.com/troupe-dev/troupe/internal/rpc"
	"github.com/troupe-dev/troupe/internal/telemetry"
	"github.com/troupe-dev/troupe/internal/transfer"
	"github.com/troupe-dev/troupe/pkg/conversation"
	"github.com/troupe-dev/troupe/pkg/execution"
	"github.com/troupe-dev/troupe/pkg/failure"
	troupev1 "github.com/troupe-dev/troupe/pkg/gen/troupe/v1"
	"github.com/troupe-dev/troupe/pkg/memory"
	"github.com/troupe-dev/troupe/pkg/memory/inmem"
	"github.com/troupe-dev/troupe/pkg/session"
	"github.com/troupe-dev/troupe/services/orchestrator/internal/api/sessions"
	"github.com/troupe-dev/troupe/services/orchestrator/internal/erase"
	"github.com/troupe-dev/troupe/services/orchestrator/internal/trace/redistrace"
)

// startServer serves the SessionService until the test ends.
func startServer(t *testing.T, service *sessions.Server) troupev1.SessionServiceClient {
	t.Helper()
	server, err := rpc.NewServer(telemetry.Discard(), rpc.Config{})
	require.NoError(t, err)
	troupev1.RegisterSessionServiceServer(server, service)
	lis, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	ctx, stop := context.WithCancel(context.WithoutCancel(t.Context()))
	done := make(chan error, 1)
	go func() { done <- server.ProcessPart(lis, time.Second).Run(ctx, func() {}) }()
	conn, err := rpc.Dial(lis.Addr().String(), telemetry.Discard())
	require.NoError(t, err)
	t.Cleanup(func() {
		require.NoError(t, conn.Close())
		stop()
		require.NoError(t, <-done)
	})
	return troupev1.NewSessionServiceClient(conn)
}

// newEraser returns an eraser for the sessions in the store. Its store of traces is empty.
func newEraser(t *testing.T, store memory.Store, cancel func(context.Context, session.Ref) error) *erase.Eraser {
	t.Helper()
	traces, err := redistrace.New(redisconn.Config{URL: "redis://" + miniredis.RunT(t).Addr()}, time.Hour)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, traces.Close()) })
	return erase.New(erase.Config{Memory: store, Traces: traces, CancelTurn: cancel, Log: zap.NewNop()})
}

func sessionRef(id string) session.Ref {
	return session.Ref{Tenant: identity.DefaultTenant, Session: id}
}

// beginTurn begins a turn of user alice.
func beginTurn(t *testing.T, store memory.Store, id, turn, text string) memory.Lease {
	t.Helper()
	begun, err := store.BeginTurn(t.Context(), memory.Begin{
		Ref: sessionRef(id), User: "alice", TurnID: turn, TraceID: "0af7651916cd43dd8448eb211c80319c", Fingerprint: "f",
		Message: conversation.User(text), LeaseTTL: time.Minute, Window: 1,
	})
	require.NoError(t, err)
	return memory.Lease{Ref: sessionRef(id), TurnID: turn, Epoch: begun.Turn.Epoch}
}

func finishTurn(t *testing.T, store memory.Store, h memory.Lease, base int64, said ...string) {
	t.Helper()
	c := memory.Commit{
		Ref: h.Ref, TurnID: h.TurnID, Epoch: h.Epoch, Base: base, Result: execution.Result{Step: 1, Agent: "echo"}, Outcome: session.OutcomeCompleted,
		State: map[string]json.RawMessage{"mood": json.RawMessage(`"calm"`)},
	}
	for _, text := range said {
		c.Messages = append(c.Messages, conversation.Assistant("echo", text))
	}
	_, err := store.CommitStep(t.Context(), c)
	require.NoError(t, err)
}

func failureMode(err error) failure.Mode { return failure.ModeOf(grpcfailure.FromStatus("test", err)) }

// Req: C-1, LP-9, LP-11, LP-21, AD-21
func TestServer_ManagesASession(t *testing.T) {
	store := inmem.New(inmem.Config{})
	c := startServer(t, &sessions.Server{Memory: store, Eraser: newEraser(t, store, nil)})
	h := beginTurn(t, store, "s1", "t1", "one fish")
	_, err := c.PauseSession(t.Context(), &troupev1.PauseSessionRequest{SessionId: "s1"})
	require.Equal(t, failure.SessionBusy, failureMode(err))
	_, err = c.CloseSession(t.Context(), &troupev1.CloseSessionRequest{SessionId: "s1"})
	require.Equal(t, failure.SessionBusy, failureMode(err))
	finishTurn(t, store, h, 1, "two fish", "red fish", "blue fish")

	paused, err := c.PauseSession(t.Context(), &troupev1.PauseSessionRequest{SessionId: "s1"})
	require.NoError(t, err)
	require.Equal(t, troupev1.SessionState_SESSION_STATE_PAUSED, paused.GetSession().GetState())
	for range 2 {
		closed, err := c.CloseSession(t.Context(), &troupev1.CloseSessionRequest{SessionId: "s1"})
		require.NoError(t, err)
		require.Equal(t, troupev1.SessionState_SESSION_STATE_CLOSED, closed.GetSession().GetState())
	}
	_, err = store.BeginTurn(t.Context(), memory.Begin{
		Ref: h.Ref, User: "alice", TurnID: "t2", TraceID: "0af7651916cd43dd8448eb211c80319c", Fingerprint: "f", Message: conversation.User("more"),
		LeaseTTL: memory.MaxLeaseTTL, Window: 10,
	})
	require.Equal(t, failure.SessionClosed, failure.ModeOf(err))
	resumed, err := c.ResumeSession(t.Context(), &troupev1.ResumeSessionRequest{SessionId: "s1"})
	require.NoError(t, err)
	require.Equal(t, troupev1.SessionState_SESSION_STATE_READY, resumed.GetSession().GetState())
	state, err := c.GetSessionState(t.Context(), &troupev1.GetSessionStateRequest{SessionId: "s1"})
	require.NoError(t, err)
	require.Equal(t, map[string]string{"mood": `"calm"`}, state.GetValues())
	found, err := c.SearchMemory(t.Context(), &troupev1.SessionServiceSearchMemoryRequest{UserId: "alice", Query: "blue fish"})
	require.NoError(t, err)
	require.Len(t, found.GetHits(), 4)
	require.EqualValues(t, 4, found.GetHits()[0].GetMessage().GetSequence())

	done, err := c.CompactSession(t.Context(), &troupev1.CompactSessionRequest{SessionId: "s1", KeepRecent: 1, Summary: "Of fish."})
	require.NoError(t, err)
	require.EqualValues(t, 3, done.GetCompaction().GetMessages())
	page, err := c.ListMessages(t.Context(), &troupev1.ListMessagesRequest{SessionId: "s1"})
	require.NoError(t, err)
	require.Len(t, page.GetMessages(), 2)
	require.Equal(t, troupev1.Role_ROLE_SUMMARY, page.GetMessages()[0].GetRole())

	_, err = c.ClearSession(t.Context(), &troupev1.ClearSessionRequest{SessionId: "s1"})
	require.NoError(t, err)
	got, err := c.GetSession(t.Context(), &troupev1.GetSessionRequest{SessionId: "s1"})
	require.NoError(t, err)
	require.Zero(t, got.GetSession().GetMessages())
	_, err = c.DeleteSession(t.Context(), &troupev1.DeleteSessionRequest{SessionId: "s1"})
	require.NoError(t, err)
	_, err = c.GetSession(t.Context(), &troupev1.GetSessionRequest{SessionId: "s1"})
	require.Equal(t, failure.SessionDeleted, failureMode(err))
}

func TestServer_ListsMessagesInPages(t *testing.T) {
	store := inmem.New(inmem.Config{})
	c := startServer(t, &sessions.Server{Memory: store, Eraser: newEraser(t, store, nil)})
	for i := range 25 {
		beginTurn(t, store, fmt.Sprintf("s%d", i), "t1", "hello")
	}
	first, err := c.ListSessions(t.Context(), &troupev1.ListSessionsRequest{UserId: "alice"})
	require.NoError(t, err)
	require.Len(t, first.GetSessions(), 20)
	require.Equal(t, "s24", first.GetSessions()[0].GetSessionId())
	rest, err := c.ListSessions(t.Context(), &troupev1.ListSessionsRequest{UserId: "alice", PageToken: first.GetNextPageToken()})
	require.NoError(t, err)
	require.Len(t, rest.GetSessions(), 5)
	require.Empty(t, rest.GetNextPageToken())
	none, err := c.ListSessions(t.Context(), &troupev1.ListSessionsRequest{UserId: "bob"})
	require.NoError(t, err)
	require.Empty(t, none.GetSessions())
}

// Req: LP-22
func TestServer_StreamsAnArtifact(t *testing.T) {
	store := inmem.New(inmem.Config{})
	c := startServer(t, &sessions.Server{Memory: store, Eraser: newEraser(t, store, nil)})
	h := beginTurn(t, store, "s1", "t1", "hello")
	content := bytes.Repeat([]byte("abc"), memory.ArtifactChunk)
	put, err := transfer.Upload(t.Context(), store, h, memory.Artifact{Name: "report"}, io.NewSectionReader(bytes.NewReader(content), 0, int64(len(content))))
	require.NoError(t, err)
	list, err := c.ListArtifacts(t.Context(), &troupev1.ListArtifactsRequest{SessionId: "s1"})
	require.NoError(t, err)
	require.Len(t, list.GetArtifacts(), 1)
	for _, offset := range []int{0, memory.ArtifactChunk + 1, len(content)} {
		stream, err := c.GetArtifact(t.Context(), &troupev1.GetArtifactRequest{SessionId: "s1", Name: "report", Offset: int64(offset)})
		require.NoError(t, err)
		first, err := stream.Recv()
		require.NoError(t, err)
		require.Equal(t, put.SHA256, first.GetArtifact().GetSha256())
		var got []byte
		for {
			item, err := stream.Recv()
			if errors.Is(err, io.EOF) {
				break
			}
			require.NoError(t, err)
			got = append(got, item.GetChunk()...)
		}
		require.True(t, bytes.Equal(content[offset:], got))
	}
	stream, err := c.GetArtifact(t.Context(), &troupev1.GetArtifactRequest{SessionId: "s1", Name: "nothing"})
	require.NoError(t, err)
	_, err = stream.Recv()
	require.Equal(t, failure.NotFound, failureMode(err))
}

// The open turn is cancelled before its session is deleted. If the turn cannot be cancelled, the session is not
// deleted.
func TestServer_DeleteCancelsTheOpenTurn(t *testing.T) {
	store := inmem.New(inmem.Config{})
	var answer error
	var cancelled []session.Ref
	c := startServer(t, &sessions.Server{Memory: store, Eraser: newEraser(t, store, func(_ context.Context, ref session.Ref) error {
		cancelled = append(cancelled, ref)
		return answer
	})})
	beginTurn(t, store, "s1", "t1", "hello")
	request := &troupev1.DeleteSessionRequest{SessionId: "s1"}
	answer = failure.New(failure.SystemNetwork, "test", "the worker is away")
	_, err := c.DeleteSession(t.Context(), request)
	require.Equal(t, failure.SystemNetwork, failureMode(err))
	_, err = store.GetSession(t.Context(), sessionRef("s1"))
	require.NoError(t, err)
	answer = nil
	_, err = c.DeleteSession(t.Context(), request)
	require.NoError(t, err)
	answer = failure.New(failure.SessionDeleted, "test", "it was deleted")
	_, err = c.DeleteSession(t.Context(), request)
	require.NoError(t, err)
	answer = failure.New(failure.NotFound, "test", "it never was")
	_, err = c.DeleteSession(t.Context(), &troupev1.DeleteSessionRequest{SessionId: "other"})
	require.Equal(t, failure.NotFound, failureMode(err))
	require.Equal(t, []session.Ref{sessionRef("s1"), sessionRef("s1"), sessionRef("s1"), sessionRef("other")}, cancelled)
}

// Erasing a user removes all of the user's sessions. The receipt names the user and the caller.
func TestServer_ErasesAUser(t *testing.T) {
	store := inmem.New(inmem.Config{})
	c := startServer(t, &sessions.Server{Memory: store, Eraser: newEraser(t, store, nil)})
	for _, id := range []string{"s1", "s2"} {
		beginTurn(t, store, id, "t1", "hello")
	}
	erased, err := c.EraseUser(t.Context(), &troupev1.EraseUserRequest{UserId: "alice"})
	require.NoError(t, err)
	counts := map[string]int64{}
	for _, items := range erased.GetReceipt().GetRemoved() {
		counts[items.GetKind()] = items.GetCount()
	}
	require.Equal(t, map[string]int64{"sessions": 2, "messages": 2, "turns": 2}, counts)
	require.Equal(t, "anybody", erased.GetReceipt().GetBy())
	require.NotNil(t, erased.GetReceipt().GetEnded())
	require.NotEmpty(t, erased.GetReceipt().GetRemains())
	left, err := c.ListSessions(t.Context(), &troupev1.ListSessionsRequest{UserId: "alice"})
	require.NoError(t, err)
	require.Empty(t, left.GetSessions())
}
