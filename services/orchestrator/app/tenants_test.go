package app

import (
	"bytes"
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/troupe-dev/troupe/internal/grpcfailure"
	"github.com/troupe-dev/troupe/internal/identity"
	"github.com/troupe-dev/troupe/internal/identity/bearer"
	"github.com/troupe-dev/troupe/internal/identity/token"
	"github.com/troupe-dev/troupe/internal/rpc"
	"github.com/troupe-dev/troupe/internal/telemetry"
	"github.com/troupe-dev/troupe/pkg/client"
	"github.com/troupe-dev/troupe/pkg/failure"
	troupev1 "github.com/troupe-dev/troupe/pkg/gen/troupe/v1"
	memory "github.com/troupe-dev/troupe/services/memory/app"
	"github.com/troupe-dev/troupe/test/etcdtest"
	"github.com/troupe-dev/troupe/test/redistest"
)

// newTenantClients starts a mesh and returns one client for each tenant. Each client is an admin, so that it may
// call every method. The mesh has no worker. So a turn fails with NO_WORKER, but still leaves a session, a
// message, a file and a trace.
func newTenantClients(t *testing.T, names ...string) map[string]*client.Client {
	t.Helper()
	var entries []token.Entry
	shown := map[string]string{}
	for _, name := range names {
		value, entry := token.New(token.Entry{Name: "admin-of-" + name, Tenant: name, Role: identity.Admin})
		entries = append(entries, entry)
		shown[name] = filepath.Join(t.TempDir(), "token")
		require.NoError(t, os.WriteFile(shown[name], []byte(value.Reveal()), 0o600))
	}
	text, err := token.FormatFile(entries...)
	require.NoError(t, err)
	file := filepath.Join(t.TempDir(), "tokens.yaml")
	require.NoError(t, os.WriteFile(file, text, 0o600))

	etcd, redis := etcdtest.Start(t), redistest.StartServer(t)
	m, err := memory.New(telemetry.Discard(), memory.Config{
		GRPCAddr: "127.0.0.1:0", HTTPAddr: "127.0.0.1:0", Redis: "redis://" + redis.Addr,
		Grace: time.Second,
	})
	require.NoError(t, err)
	runService(t, m)
	a, err := New(telemetry.Discard(), testConfig(t, "--etcd", etcd.Endpoints()[0], "--memory", m.GRPCAddr(), "--redis", "redis://"+redis.Addr,
		"--client-tokens", file, "--route-wait", "1ms"), workflowFiles(flowManifest))
	require.NoError(t, err)
	<-runService(t, a)
	all := map[string]*client.Client{}
	for name, file := range shown {
		conn, err := rpc.Dial(a.GRPCAddr(), telemetry.Discard())
		require.NoError(t, err)
		t.Cleanup(func() { require.NoError(t, conn.Close()) })
		as, err := bearer.TokenConfig{File: file}.Credentials(a.GRPCAddr(), false)
		require.NoError(t, err)
		all[name] = client.New(client.WithCredentials(conn, as))
	}
	return all
}

// runFailingTurn runs a turn of user alice in the session. The turn fails but is stored. It returns the trace id.
func runFailingTurn(t *testing.T, c *client.Client, session, request, text string) string {
	t.Helper()
	traceID := ""
	for e, err := range c.Turn(t.Context(), &troupev1.OrchestrateRequest{
		Input: &troupev1.OrchestrateRequest_Text{Text: text}, SessionId: session, RequestId: request, UserId: "alice",
		Parts: []*troupev1.Part{{Content: &troupev1.Part_Blob{Blob: &troupev1.Blob{Name: "file.txt", Data: []byte(text)}}}},
	}) {
		require.NoError(t, err)
		traceID = e.GetTraceId()
		if e.GetTurnResult() != nil {
			require.Equal(t, troupev1.FailureMode_FAILURE_MODE_NO_WORKER, e.GetTurnResult().GetFailure().GetMode())
		}
	}
	return traceID
}

// targetIDs holds the ids that a request uses to name an object.
type targetIDs struct{ session, trace string }

// callsByMethod returns one call of each method that names an object. Reads come before writes.
func callsByMethod(n targetIDs) []struct {
	method string
	call   func(ctx context.Context, c *client.Client) (proto.Message, error)
} {
	type one = struct {
		method string
		call   func(ctx context.Context, c *client.Client) (proto.Message, error)
	}
	text := func(r *troupev1.OrchestrateRequest) func(context.Context, *client.Client) (proto.Message, error) {
		return func(ctx context.Context, c *client.Client) (proto.Message, error) {
			r.RequestId = "probe"
			stream, err := c.Orchestrate(ctx, r)
			if err != nil {
				return nil, err
			}
			first, err := stream.Recv()
			return first, err
		}
	}
	return []one{
		{"GetTrace", func(ctx context.Context, c *client.Client) (proto.Message, error) {
			return c.GetTrace(ctx, &troupev1.GetTraceRequest{TraceId: n.trace, Plan: true})
		}},
		{"WatchTrace", func(ctx context.Context, c *client.Client) (proto.Message, error) {
			stream, err := c.WatchTrace(ctx, &troupev1.WatchTraceRequest{TraceId: n.trace})
			if err != nil {
				return nil, err
			}
			return stream.Recv()
		}},
		{"ListTraces", func(ctx context.Context, c *client.Client) (proto.Message, error) {
			return c.ListTraces(ctx, &troupev1.ListTracesRequest{RootTraceId: n.trace})
		}},
		{"ListDecisions", func(ctx context.Context, c *client.Client) (proto.Message, error) {
			return c.ListDecisions(ctx, &troupev1.ListDecisionsRequest{TraceId: n.trace})
		}},
		{"ReplayTrace", func(ctx context.Context, c *client.Client) (proto.Message, error) {
			return c.ReplayTrace(ctx, &troupev1.ReplayTraceRequest{TraceId: n.trace})
		}},
		{"GetSession", func(ctx context.Context, c *client.Client) (proto.Message, error) {
			return c.Sessions.GetSession(ctx, &troupev1.GetSessionRequest{SessionId: n.session})
		}},
		{"ListMessages", func(ctx context.Context, c *client.Client) (proto.Message, error) {
			return c.Sessions.ListMessages(ctx, &troupev1.ListMessagesRequest{SessionId: n.session})
		}},
		{"ListRounds", func(ctx context.Context, c *client.Client) (proto.Message, error) {
			return c.Sessions.ListRounds(ctx, &troupev1.ListRoundsRequest{SessionId: n.session, Agent: "echo"})
		}},
		{"ListSessions", func(ctx context.Context, c *client.Client) (proto.Message, error) {
			return c.Sessions.ListSessions(ctx, &troupev1.ListSessionsRequest{UserId: "alice", PageToken: "9999999999999/" + n.session})
		}},
		{"GetSessionState", func(ctx context.Context, c *client.Client) (proto.Message, error) {
			return c.Sessions.GetSessionState(ctx, &troupev1.GetSessionStateRequest{SessionId: n.session})
		}},
		{"ListArtifacts", func(ctx context.Context, c *client.Client) (proto.Message, error) {
			return c.Sessions.ListArtifacts(ctx, &troupev1.ListArtifactsRequest{SessionId: n.session})
		}},
		{"GetArtifact", func(ctx context.Context, c *client.Client) (proto.Message, error) {
			stream, err := c.Sessions.GetArtifact(ctx, &troupev1.GetArtifactRequest{SessionId: n.session, Name: "file.txt"})
			if err != nil {
				return nil, err
			}
			return stream.Recv()
		}},
		{"SearchMemory", func(ctx context.Context, c *client.Client) (proto.Message, error) {
			return c.Sessions.SearchMemory(ctx, &troupev1.SessionServiceSearchMemoryRequest{UserId: "alice", Query: "fish"})
		}},
		{"Orchestrate", text(&troupev1.OrchestrateRequest{SessionId: n.session, Input: &troupev1.OrchestrateRequest_Answers{Answers: &troupev1.Answers{
			Answers: []*troupev1.CallAnswer{{Id: "call-1", Verdict: troupev1.CallVerdict_CALL_VERDICT_APPROVE}},
		}}})},
		{"Orchestrate", text(&troupev1.OrchestrateRequest{From: &troupev1.From{TraceId: n.trace}})},
		{"Orchestrate", text(&troupev1.OrchestrateRequest{From: &troupev1.From{TraceId: n.trace, Step: 1, Fork: true}, SessionId: "a-fork"})},
		{"CancelTrace", func(ctx context.Context, c *client.Client) (proto.Message, error) {
			return c.CancelTrace(ctx, &troupev1.CancelTraceRequest{TraceId: n.trace})
		}},
		{"ConfigureSession", func(ctx context.Context, c *client.Client) (proto.Message, error) {
			return c.Sessions.ConfigureSession(ctx, &troupev1.ConfigureSessionRequest{
				SessionId: n.session, Settings: &troupev1.SessionSettings{MaxMessages: 7},
			})
		}},
		{"SaveSession", func(ctx context.Context, c *client.Client) (proto.Message, error) {
			return c.Sessions.SaveSession(ctx, &troupev1.SaveSessionRequest{SessionId: n.session})
		}},
		{"PauseSession", func(ctx context.Context, c *client.Client) (proto.Message, error) {
			return c.Sessions.PauseSession(ctx, &troupev1.PauseSessionRequest{SessionId: n.session})
		}},
		{"CloseSession", func(ctx context.Context, c *client.Client) (proto.Message, error) {
			return c.Sessions.CloseSession(ctx, &troupev1.CloseSessionRequest{SessionId: n.session})
		}},
		{"ResumeSession", func(ctx context.Context, c *client.Client) (proto.Message, error) {
			return c.Sessions.ResumeSession(ctx, &troupev1.ResumeSessionRequest{SessionId: n.session})
		}},
		{"CompactSession", func(ctx context.Context, c *client.Client) (proto.Message, error) {
			return c.Sessions.CompactSession(ctx, &troupev1.CompactSessionRequest{SessionId: n.session})
		}},
		{"ClearSession", func(ctx context.Context, c *client.Client) (proto.Message, error) {
			return c.Sessions.ClearSession(ctx, &troupev1.ClearSessionRequest{SessionId: n.session})
		}},
		{"DeleteSession", func(ctx context.Context, c *client.Client) (proto.Message, error) {
			return c.Sessions.DeleteSession(ctx, &troupev1.DeleteSessionRequest{SessionId: n.session})
		}},
	}
}

// meshWideMethods lists the methods that name no object of a tenant. Agents, workflows and instances serve all
// tenants.
var meshWideMethods = []string{
	"ListAgents", "ListInstances", "ListWorkflows", "GetWorkflow", "DescribeInstance", "PauseAgent", "ResumeAgent", "DrainInstance", "StartInstance",
	"QuarantineAgent", "ReleaseAgent",
}

// responseBytes returns the response or error that a caller receives. It replaces the ids in it by the ids of
// other, so that two responses can be compared.
func responseBytes(t *testing.T, n, other targetIDs, m proto.Message, err error) []byte {
	t.Helper()
	reportedErr := grpcfailure.ToProto(grpcfailure.FromStatus("test", err))
	require.False(t, errors.Is(err, io.EOF), "%v", err)
	if err == nil {
		reportedErr = &troupev1.Failure{}
	} else {
		m = &troupev1.Failure{}
	}
	a, failed := proto.MarshalOptions{Deterministic: true}.Marshal(reportedErr)
	require.NoError(t, failed)
	b, failed := proto.MarshalOptions{Deterministic: true}.Marshal(m)
	require.NoError(t, failed)
	text := slices.Concat(a, []byte("|"), b)
	if err != nil {
		text = append(text, "|"+err.Error()...)
	}
	text = bytes.ReplaceAll(text, []byte(n.session), []byte(other.session))
	return bytes.ReplaceAll(text, []byte(n.trace), []byte(other.trace))
}

// For every method that names an object, another tenant's object looks exactly like an object that does not exist.
// The response is the same byte for byte, and the object is never changed (guarantee S5).
func TestApp_ObjectsOfOtherTenantsAreNotFound(t *testing.T) {
	all := newTenantClients(t, "acme", "umbrella")
	nothing := targetIDs{"session-0", strings.Repeat("0", 31) + "1"}
	for _, pair := range [][2]string{{"acme", "umbrella"}, {"umbrella", "acme"}} {
		owner, other := all[pair[0]], all[pair[1]]
		there := targetIDs{session: "session-" + pair[0][:1]}
		there.trace = runFailingTurn(t, owner, there.session, "r1", "one fish of "+pair[0])
		before := readAsOwner(t, owner, there)

		covered := slices.Clone(meshWideMethods)
		absent := callsByMethod(nothing)
		for i, foreign := range callsByMethod(there) {
			got, err := foreign.call(t.Context(), other)
			want, wantErr := absent[i].call(t.Context(), other)
			require.Equal(t, string(responseBytes(t, nothing, nothing, want, wantErr)), string(responseBytes(t, there, nothing, got, err)), foreign.method)
			require.NotContains(t, string(responseBytes(t, there, nothing, got, err)), "fish of "+pair[0], foreign.method)
			if !slices.Contains([]string{"ListTraces", "ListDecisions", "ListSessions", "SearchMemory"}, foreign.method) {
				require.True(t, failure.Is(grpcfailure.FromStatus("test", err), failure.NotFound), "%s: %v", foreign.method, err)
			}
			covered = append(covered, foreign.method)
		}
		_, err := other.Sessions.EraseUser(t.Context(), &troupev1.EraseUserRequest{UserId: "alice"}) // the other tenant has its own alice
		require.NoError(t, err)
		covered = append(covered, "EraseUser")
		require.Equal(t, before, readAsOwner(t, owner, there), "nothing of it changed")
		for _, service := range []protoreflect.ServiceDescriptor{
			troupev1.File_troupe_v1_orchestrator_proto.Services().ByName("OrchestratorService"),
			troupev1.File_troupe_v1_session_proto.Services().ByName("SessionService"),
		} {
			for i := range service.Methods().Len() {
				require.Contains(t, covered, string(service.Methods().Get(i).Name()), "a method that names objects must be asked here")
			}
		}
	}
}

// readAsOwner returns everything that the owner of the objects can read about them.
func readAsOwner(t *testing.T, owner *client.Client, n targetIDs) map[string]string {
	t.Helper()
	all := map[string]string{}
	for _, a := range callsByMethod(n)[:13] { // the reads
		if a.method == "ReplayTrace" {
			continue
		}
		m, err := a.call(t.Context(), owner)
		require.NoError(t, err, a.method)
		all[a.method] = string(responseBytes(t, n, n, m, nil))
	}
	require.Contains(t, all["ListMessages"], "fish of ")
	require.Contains(t, all["SearchMemory"], "fish of ")
	return all
}

// Two tenants that use the same session id and request id get separate turns.
func TestApp_SeparatesTenantsThatUseTheSameIDs(t *testing.T) {
	all := newTenantClients(t, "acme", "umbrella")
	traces := map[string]string{}
	for _, name := range []string{"acme", "umbrella"} {
		traces[name] = runFailingTurn(t, all[name], "s1", "r1", "a fish of "+name)
	}
	require.NotEqual(t, traces["acme"], traces["umbrella"])
	for name, c := range all {
		require.Equal(t, traces[name], runFailingTurn(t, c, "s1", "r1", "a fish of "+name), "the same turn again")
		history, err := c.Sessions.ListMessages(t.Context(), &troupev1.ListMessagesRequest{SessionId: "s1"})
		require.NoError(t, err)
		require.Len(t, history.GetMessages(), 1)
		require.Contains(t, history.String(), "a fish of "+name)
		listed, err := c.ListTraces(t.Context(), &troupev1.ListTracesRequest{})
		require.NoError(t, err)
		require.Len(t, listed.GetTraces(), 1)
		require.Equal(t, traces[name], listed.GetTraces()[0].GetTraceId())
		found, err := c.Sessions.SearchMemory(t.Context(), &troupev1.SessionServiceSearchMemoryRequest{UserId: "alice", Query: "fish"})
		require.NoError(t, err)
		require.Len(t, found.GetHits(), 1)
	}
	_, err := all["acme"].Sessions.DeleteSession(t.Context(), &troupev1.DeleteSessionRequest{SessionId: "s1"})
	require.NoError(t, err)
	_, err = all["umbrella"].Sessions.GetSession(t.Context(), &troupev1.GetSessionRequest{SessionId: "s1"})
	require.NoError(t, err)

	// A page token is a position in the caller's own list. A tenant that uses another tenant's token still sees
	// only its own objects.
	_ = runFailingTurn(t, all["umbrella"], "s2", "r2", "a fish of umbrella")
	page, err := all["umbrella"].Sessions.ListSessions(t.Context(), &troupev1.ListSessionsRequest{PageSize: 1})
	require.NoError(t, err)
	require.NotEmpty(t, page.GetNextPageToken())
	foreign, err := all["acme"].Sessions.ListSessions(t.Context(), &troupev1.ListSessionsRequest{PageSize: 10, PageToken: page.GetNextPageToken()})
	require.NoError(t, err)
	require.Empty(t, foreign.GetSessions())
}

// Without client tokens, calls are rejected. An orchestrator without tokens does not start on an address that
// other machines can reach.
func TestApp_RequiresClientTokens(t *testing.T) {
	_, err := New(telemetry.Discard(), testConfig(t, "--client-tokens", filepath.Join(t.TempDir(), "absent")), workflowFiles(flowManifest))
	require.ErrorContains(t, err, "--client-tokens: ")
	cfg := testConfig(t, "--insecure-plaintext-beyond-loopback")
	cfg.Port.GRPCAddr = "0.0.0.0:0"
	_, err = New(telemetry.Discard(), cfg, workflowFiles(flowManifest))
	require.ErrorContains(t, err, "give --client-tokens or --oidc-issuer, serve on 127.0.0.1, or add --insecure-anonymous-clients")
	cfg.Port.Clients.Anonymous = true
	a, err := New(telemetry.Discard(), cfg, workflowFiles(flowManifest))
	require.NoError(t, err)
	require.NoError(t, a.Close())
	_, err = parseFlags(t, "--insecure-anonymous-clients", "--client-tokens", "file")
	require.ErrorContains(t, err, "no caller is anonymous")
}
