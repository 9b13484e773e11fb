package scenario

import (
	"errors"
	"fmt"
	"maps"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"
	collector "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	"golang.org/x/sync/errgroup"
	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/emptypb"

	"github.com/troupe-dev/troupe/internal/grpcfailure"
	"github.com/troupe-dev/troupe/internal/identity/bearer"
	"github.com/troupe-dev/troupe/pkg/failure"
	troupev1 "github.com/troupe-dev/troupe/pkg/gen/troupe/v1"
	"github.com/troupe-dev/troupe/test/rig"
)

// Turns run with a user's credential that exists nowhere else. They answer, lose their worker, fail, panic, are
// cancelled and are rejected. Afterwards no data that the mesh has written or published contains this credential,
// a turn credential or a client token. The search covers all disks, answers, logs, audit logs, spans and metrics
// (guarantees S8, S19). It also finds planted data, which proves that it works.
// Req: LP-18, AD-34
func TestCredentialCanary_Binaries(t *testing.T) {
	t.Parallel()
	spans := collectSpans(t)
	s := newGatedMesh(t, rig.StartBinaries(t, rig.Config{LogLevel: "debug", CollectorURL: spans.url, AuditLogFolder: t.TempDir(), RequireTokens: true}))
	canary := "CANARY" + strings.ReplaceAll(uuid.NewString(), "-", "")
	told := &clientRecord{traces: map[string]string{}}
	in := func(req *troupev1.OrchestrateRequest) *troupev1.OrchestrateRequest {
		req.Auth = &troupev1.Auth{Actor: canary + "-actor", Credentials: map[string]string{"gate": canary + "-token"}}
		return req
	}
	finish := func(req *troupev1.OrchestrateRequest, events []*troupev1.Event) *troupev1.TurnResult {
		told.addTurn(t, s.Mesh, req, events)
		return turnResult(events)
	}

	answered := in(textRequest(question))
	require.Equal(t, troupev1.TurnOutcome_TURN_OUTCOME_COMPLETED, finish(answered, runTurn(t, s.Mesh, answered)).GetOutcome())

	lost, key := slowRequest("hold")
	wait := s.startTurn(t, in(lost))
	first := s.gate.AwaitCall(t, key)
	s.Kill(rig.Part(first))
	s.gate.AwaitCall(t, key)
	s.gate.Open(key)
	require.Equal(t, troupev1.TurnOutcome_TURN_OUTCOME_COMPLETED, finish(lost, wait()).GetOutcome())
	require.Contains(t, s.gate.Callers(key), "tool "+canary+"-actor "+canary+"-token", "the tool did have it")
	s.Start(rig.Part(first))

	turns := s.gate.TurnCredentials(key)
	require.NotEmpty(t, turns, "a tool finds the credential of its turn, too")
	for _, credential := range turns {
		require.Regexp(t, "^"+jwtPattern+"$", credential)
	}

	failed, _ := slowRequest("fail")
	failed.SessionId = lost.GetSessionId()
	require.Contains(t, finish(failed, runTurn(t, s.Mesh, in(failed))).GetFailure().GetMessage(), "map[gate:[REDACTED]]")

	panicked, key := slowRequest("panic")
	why := finish(panicked, runTurn(t, s.Mesh, in(panicked))).GetFailure()
	require.Equal(t, troupev1.FailureMode_FAILURE_MODE_AGENT_LOGIC, why.GetMode(), "%v", why)
	require.Contains(t, s.gate.Callers(key), "tool "+canary+"-actor "+canary+"-token", "who panicked did have it")

	cancelled, key := slowRequest("hold")
	wait = s.startTurn(t, in(cancelled))
	s.gate.AwaitCall(t, key)
	urgent := in(textRequest(question))
	urgent.SessionId, urgent.OnBusy = cancelled.GetSessionId(), troupev1.OnBusy_ON_BUSY_INTERRUPT
	finish(urgent, runTurn(t, s.Mesh, urgent))
	require.Equal(t, troupev1.TurnOutcome_TURN_OUTCOME_CANCELLED, finish(cancelled, wait()).GetOutcome())

	for _, change := range []func(*troupev1.OrchestrateRequest){
		func(r *troupev1.OrchestrateRequest) { r.Target = "nowhere" },
		func(r *troupev1.OrchestrateRequest) {
			r.SessionId, r.RequestId = lost.GetSessionId(), lost.GetRequestId()
		},
		func(r *troupev1.OrchestrateRequest) { r.Auth.Actor = strings.Repeat(canary, 10) },
		func(r *troupev1.OrchestrateRequest) { r.Auth.Credentials["Bearer "+canary] = "gate" },
		func(r *troupev1.OrchestrateRequest) { r.Auth.Credentials["gate"] = strings.Repeat(canary, 1000) },
		func(r *troupev1.OrchestrateRequest) { r.Auth.Credentials["gate"] = strings.Repeat(canary, 200_000) },
	} {
		req := in(textRequest(question))
		change(req)
		told.addError(requireRejected(t, s.Mesh, req))
	}
	stranger := metadata.AppendToOutgoingContext(t.Context(), bearer.Header, bearer.Scheme+canary+"-stranger")
	_, err := troupev1.NewOrchestratorServiceClient(s.Conn).ListAgents(stranger, &troupev1.ListAgentsRequest{})
	require.True(t, failure.Is(grpcfailure.FromStatus("scenario", err), failure.UserUnauthenticated), "%v", err)
	told.addError(grpcfailure.FromStatus("scenario", err))
	s.awaitAll(t)
	runManyTurns(t, s, told, canary)

	// RAM may contain copies that Go has not overwritten yet, so no process may leave a core dump.
	held, door := slowRequest("hold")
	wait = s.startTurn(t, in(held))
	first = s.gate.AwaitCall(t, door)
	require.False(t, s.Crash(rig.Part(first)), "a core of the worker that has the credential")
	s.gate.AwaitCall(t, door)
	s.gate.Open(door)
	require.Equal(t, troupev1.TurnOutcome_TURN_OUTCOME_COMPLETED, turnResult(wait()).GetOutcome())
	s.Start(rig.Part(first))
	s.awaitAll(t)

	left := s.WrittenData()
	for _, p := range []rig.Part{rig.Orchestrator, "slow-1", "slow-2", "slow-3", rig.Worker("research"), rig.Memory} {
		s.Stop(p) // the part exports its last spans and writes its last log lines
	}
	maps.Copy(left, s.WrittenData())
	left["spans"], left["told"] = spans.all(), told.all()
	spans.requireOneTree(t)

	holding := func(what string) string { return strings.Join(placesContaining(left, what), "\n") }
	for what, where := range map[string][]string{
		key:                                {"redis /appendonlydir/", "redis /dump.rdb", "told"},
		told.traces[failed.GetRequestId()]: {"/orchestrator.log", "/slowworker.log", "redis /"},
		"slow-1":                           {"etcd /member/wal/", "etcd /member/snap/db"},
		"ExecuteStep":                      {"spans", "metrics orchestrator", "metrics slow-"},
		"BeginTurn":                        {"/memory.log", "metrics memory"},
		"[REDACTED]":                       {"told", "redis /dump.rdb", "/slowworker.log"},
		"panic: [REDACTED]":                {"/slowworker.log"},
		"the tool panicked: [REDACTED]":    {"told", "redis /dump.rdb"},
		panicked.GetSessionId():            {"audit /orchestrator.jsonl"},
	} {
		for _, place := range where {
			require.Contains(t, holding(what), place, "the search does not find %s", what)
		}
	}
	require.Empty(t, placesContaining(left, canary))
	require.Empty(t, placesContaining(left, s.Credentials.Token()), "the token of a client")
	for place, content := range left {
		require.NotRegexp(t, jwtPattern, content, "the credential of a turn in %s", place)
	}
	size := 0
	for _, content := range left {
		size += len(content)
	}
	t.Logf("not in %d places of %d MiB", len(left), size>>20)
}

// jwtPattern matches every JWT, and so every turn credential.
const jwtPattern = `eyJ[\w-]{20,}\.eyJ[\w-]{20,}\.[\w-]{40,}`

// runManyTurns runs many turns at once, each with its own credential, while parts of the mesh are killed and
// restarted.
func runManyTurns(t *testing.T, s *gatedMesh, told *clientRecord, canary string) {
	t.Helper()
	const turns, atOnce = 190, 16
	said := make([][]*troupev1.Event, turns)
	failed := make([]error, turns)
	var group errgroup.Group
	group.SetLimit(atOnce + 1)
	group.Go(func() error {
		var each errgroup.Group
		each.SetLimit(atOnce)
		for n := range turns {
			req := textRequest(question)
			if n%4 > 0 {
				req, _ = slowRequest("fail")
			}
			own := fmt.Sprintf("%s-%d", canary, n)
			req.Auth = &troupev1.Auth{Actor: own + "-actor", Credentials: map[string]string{"gate": own + "-token"}}
			each.Go(func() error {
				said[n], failed[n] = collectEvents(t.Context(), s.Mesh, req)
				return nil // the outcome is published
			})
		}
		return each.Wait()
	})
	for _, p := range []rig.Part{rig.Memory, rig.Redis, rig.Orchestrator, "slow-2"} {
		s.Kill(p)
		s.Start(p)
		s.awaitAll(t)
	}
	require.NoError(t, group.Wait())
	ended := 0
	for n, events := range said {
		for _, e := range events {
			told.addMessage(e)
		}
		if failed[n] != nil {
			told.addError(failed[n])
		} else {
			ended++
		}
	}
	require.Greater(t, ended, turns*3/4, "%v", failed)
	t.Logf("%d of %d turns came to an end, for the others the call failed", ended, turns)
}

// placesContaining returns the places whose content contains the text.
func placesContaining(places map[string]string, what string) (all []string) {
	for place, content := range places {
		if strings.Contains(content, what) {
			all = append(all, place)
		}
	}
	slices.Sort(all)
	return all
}

// clientRecord holds every text that a client received.
type clientRecord struct {
	texts  []string
	traces map[string]string // by request id
}

func (r *clientRecord) addMessage(m proto.Message) { r.texts = append(r.texts, protojson.Format(m)) }

func (r *clientRecord) addError(err error) {
	e, _ := errors.AsType[*failure.Error](err)
	r.texts = append(r.texts, fmt.Sprintf("%v %+v %v", err, err, e.Facts))
	r.addMessage(grpcfailure.ToProto(err))
}

// addTurn adds everything that a client can read after a turn has ended.
func (r *clientRecord) addTurn(t *testing.T, m *rig.Mesh, req *troupev1.OrchestrateRequest, events []*troupev1.Event) {
	t.Helper()
	trace := events[0].GetTraceId()
	r.traces[req.GetRequestId()] = trace
	for _, e := range events {
		r.addMessage(e)
	}
	for e, err := range m.Watch(t.Context(), trace, 0) {
		require.NoError(t, err)
		r.addMessage(e)
	}
	got, err := m.GetTrace(t.Context(), &troupev1.GetTraceRequest{TraceId: trace})
	require.NoError(t, err)
	r.addMessage(got)
	listed, err := m.ListTraces(t.Context(), &troupev1.ListTracesRequest{})
	require.NoError(t, err)
	r.addMessage(listed)
	session, err := m.Sessions.GetSession(t.Context(), &troupev1.GetSessionRequest{SessionId: req.GetSessionId()})
	require.NoError(t, err)
	r.addMessage(session)
	messages, err := m.Sessions.ListMessages(t.Context(), &troupev1.ListMessagesRequest{SessionId: req.GetSessionId()})
	require.NoError(t, err)
	r.addMessage(messages)
	state, err := m.Sessions.GetSessionState(t.Context(), &troupev1.GetSessionStateRequest{SessionId: req.GetSessionId()})
	require.NoError(t, err)
	r.addMessage(state)
}

func (r *clientRecord) all() string { return strings.Join(r.texts, "\n") }

// spanCollector stores the encoded spans that it receives as an OpenTelemetry collector.
type spanCollector struct {
	url string

	mu       sync.Mutex
	received strings.Builder
	missing  map[string]bool // kinds of agent spans that were not seen yet
}

// collectSpans starts a collector that receives spans until the test ends.
func collectSpans(t *testing.T) *spanCollector {
	t.Helper()
	s := &spanCollector{missing: map[string]bool{"invoke_agent": true, "iteration": true, "generate_content": true, "execute_tool": true}}
	server := grpc.NewServer(grpc.UnknownServiceHandler(func(_ any, stream grpc.ServerStream) error {
		var body emptypb.Empty // keeps the bytes of every field
		if err := stream.RecvMsg(&body); err != nil {
			return err
		}
		s.mu.Lock()
		s.received.Write(body.ProtoReflect().GetUnknown())
		s.mu.Unlock()
		return stream.SendMsg(&emptypb.Empty{})
	}))
	lis, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	ended := make(chan error, 1)
	go func() { ended <- server.Serve(lis) }()
	t.Cleanup(func() { server.Stop(); require.NoError(t, <-ended) })
	s.url = "http://" + lis.Addr().String()
	return s
}

// requireOneTree checks that the agents' spans descend from the client's call, although other processes emit them.
func (s *spanCollector) requireOneTree(t *testing.T) {
	t.Helper()
	var came collector.ExportTraceServiceRequest
	require.NoError(t, proto.Unmarshal([]byte(s.all()), &came), "requests behind each other are one")
	names, parents := map[string]string{}, map[string]string{}
	for _, r := range came.GetResourceSpans() {
		for _, scope := range r.GetScopeSpans() {
			for _, span := range scope.GetSpans() {
				names[string(span.GetSpanId())], parents[string(span.GetSpanId())] = span.GetName(), string(span.GetParentSpanId())
			}
		}
	}
	killed := func(id string) bool { // its parent span was lost with its process
		for at := parents[id]; at != ""; at = parents[at] {
			if names[at] == "" {
				return true
			}
		}
		return false
	}
	for id, name := range names {
		switch {
		case killed(id):
			continue
		case strings.HasPrefix(name, "invoke_agent "):
			above := ""
			for at := id; at != ""; at = parents[at] {
				above += names[at] + " < "
			}
			require.Contains(t, above, "AgentService/ExecuteStep < ", "in the worker")
			if strings.HasSuffix(above, "AgentService/ExecuteStep < ") {
				continue // maintenance took over the turn, so its steps descend from no client call
			}
			require.Contains(t, above, "OrchestratorService/Orchestrate < ", "in the orchestrator")
		case name == "iteration":
			require.Contains(t, names[parents[id]], "invoke_agent ", name)
		case strings.HasPrefix(name, "generate_content "), strings.HasPrefix(name, "execute_tool "):
			require.Equal(t, "iteration", names[parents[id]], name)
		default:
			continue
		}
		delete(s.missing, strings.Fields(name)[0])
	}
	require.Empty(t, s.missing)
}

func (s *spanCollector) all() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.received.String()
}
