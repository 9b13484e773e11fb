package app

import (
	"context"
	"errors"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/zap"
	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/troupe-dev/troupe/internal/authz"
	"github.com/troupe-dev/troupe/internal/grpcfailure"
	"github.com/troupe-dev/troupe/internal/identity"
	"github.com/troupe-dev/troupe/internal/identity/turncred"
	"github.com/troupe-dev/troupe/internal/memoryrpc"
	"github.com/troupe-dev/troupe/internal/rpc"
	"github.com/troupe-dev/troupe/internal/telemetry"
	"github.com/troupe-dev/troupe/internal/turnctx"
	"github.com/troupe-dev/troupe/pkg/conversation"
	"github.com/troupe-dev/troupe/pkg/failure"
	troupev1 "github.com/troupe-dev/troupe/pkg/gen/troupe/v1"
	"github.com/troupe-dev/troupe/pkg/memory"
	"github.com/troupe-dev/troupe/pkg/session"
	"github.com/troupe-dev/troupe/test/redistest"
)

// secureApp is a memory service in a mesh with identities. The users ann and bob have a session each, with an open
// turn.
type secureApp struct {
	*runningApp
	dir       string
	signer    *turncred.Authority
	worker    *grpc.ClientConn // connection of agent research
	turn      turncred.Turn    // turn of research in ann's session
	otherTurn turncred.Turn    // turn of synthesis in bob's session
}

func runSecureApp(t testing.TB) *secureApp {
	t.Helper()
	s := &secureApp{dir: t.TempDir()}
	s.runningApp = runApp(t, "redis://"+redistest.Start(t), func(cfg *Config) { cfg.Identity = identity.Config{DevCA: s.dir} })
	<-s.ready
	s.signer = turncred.New(s.clientIdentity(t, identity.Orchestrator, ""))
	s.worker = s.dial(t, identity.Worker, "research")
	s.turn = s.beginTurn(t, "research", "s-ann", "ann")
	s.otherTurn = s.beginTurn(t, "synthesis", "s-bob", "bob")
	return s
}

func (s *secureApp) clientIdentity(t testing.TB, role identity.Role, agent string) *identity.Source {
	t.Helper()
	self, err := identity.Open(identity.Config{DevCA: s.dir}, role, agent, zap.NewNop())
	require.NoError(t, err)
	return self
}

func (s *secureApp) dial(t testing.TB, role identity.Role, agent string) *grpc.ClientConn {
	t.Helper()
	conn, err := rpc.DialWith(s.clientIdentity(t, role, agent).ClientCredentials(identity.Memory, ""), s.GRPCAddr(), telemetry.Discard())
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, conn.Close()) })
	return conn
}

func (s *secureApp) beginTurn(t testing.TB, agent, sessionID, user string) turncred.Turn {
	t.Helper()
	turn := turncred.Turn{Agent: agent, Tenant: identity.DefaultTenant, Session: sessionID, ID: "t-" + sessionID, User: user, Trace: strings.Repeat("a",
		32), Step: 1}
	begun, err := memoryrpc.New(s.dial(t, identity.Orchestrator, "")).BeginTurn(t.Context(), memory.Begin{
		Ref: session.Ref{Session: sessionID}, User: user, TurnID: turn.ID, TraceID: turn.Trace,
		Fingerprint: "f", Message: conversation.User("hello"), LeaseTTL: time.Minute, Window: 10,
	})
	require.NoError(t, err)
	turn.Epoch = begun.Turn.Epoch
	return turn
}

// withCredential returns a context whose calls carry a credential for the turn.
func (s *secureApp) withCredential(t testing.TB, turn turncred.Turn, deadline time.Time) context.Context {
	t.Helper()
	credential, err := s.signer.Issue(turn, deadline)
	require.NoError(t, err)
	return metadata.AppendToOutgoingContext(t.Context(), turnctx.CredentialKey, credential)
}

const emptySHA256 = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"

// workerRequests returns a valid request in the turn for each method that workers may call.
func workerRequests(of turncred.Turn) map[string]proto.Message {
	lease := durationpb.New(time.Minute)
	reply := &troupev1.Message{Role: troupev1.Role_ROLE_ASSISTANT, Author: of.Agent, Parts: []*troupev1.Part{{Content: &troupev1.Part_Text{Text: "hi"}}}}
	file := &troupev1.Artifact{Name: "empty", Sha256: emptySHA256}
	return map[string]proto.Message{
		"RenewTurn":     &troupev1.RenewTurnRequest{SessionId: of.Session, TurnId: of.ID, Epoch: of.Epoch, Lease: lease},
		"LoadHistory":   &troupev1.LoadHistoryRequest{SessionId: of.Session, Limit: 10},
		"GetSession":    &troupev1.MemoryServiceGetSessionRequest{SessionId: of.Session},
		"GetState":      &troupev1.MemoryServiceGetStateRequest{SessionId: of.Session},
		"SearchMemory":  &troupev1.SearchMemoryRequest{UserId: of.User, Query: "hello", Limit: 10},
		"ListArtifacts": &troupev1.MemoryServiceListArtifactsRequest{SessionId: of.Session},
		"LoadJournal":   &troupev1.LoadJournalRequest{SessionId: of.Session, TurnId: of.ID, Epoch: of.Epoch, Step: int32(of.Step)},
		"LoadRounds":    &troupev1.LoadRoundsRequest{SessionId: of.Session, Agent: of.Agent},
		"PutArtifact": &troupev1.PutArtifactRequest{Item: &troupev1.PutArtifactRequest_Header{Header: &troupev1.PutArtifactHeader{
			SessionId: of.Session,
			TurnId:    of.ID, Epoch: of.Epoch, Artifact: file,
		}}},
		"GetArtifact":    &troupev1.MemoryServiceGetArtifactRequest{SessionId: of.Session, Name: "empty"},
		"DeleteArtifact": &troupev1.DeleteArtifactRequest{SessionId: of.Session, TurnId: of.ID, Epoch: of.Epoch, Name: "none"},
		"UpdateState": &troupev1.UpdateStateRequest{
			SessionId: of.Session, TurnId: of.ID, Epoch: of.Epoch, RequestId: "r",
			Delta: map[string]string{"user:name": `"Ann"`},
		},
		"Journal": &troupev1.JournalRequest{SessionId: of.Session, TurnId: of.ID, Epoch: of.Epoch, Step: int32(of.Step), Entries: []*troupev1.JournalEntry{
			{Number: 1, Phase: troupev1.JournalPhase_JOURNAL_PHASE_DONE, Reply: reply},
		}},
		"CommitStep": &troupev1.CommitStepRequest{
			SessionId: of.Session, TurnId: of.ID, Epoch: of.Epoch, BaseSequence: 1, Messages: []*troupev1.Message{reply}, Result: &troupev1.StepResult{Step: int32(of.Step), Agent: of.Agent, Text: "hi"},
		},
		"GetRecording": &troupev1.GetRecordingRequest{SessionId: of.Session, TurnId: of.ID, Step: int32(of.Step)},
	}
}

// callMethod calls a method of the service and returns its error.
func callMethod(ctx context.Context, conn *grpc.ClientConn, method string, req proto.Message) error {
	ctx, cancel := context.WithTimeout(ctx, 20*time.Second)
	defer cancel()
	described := troupev1.File_troupe_v1_memory_proto.Services().ByName("MemoryService").Methods().ByName(protoreflect.Name(method))
	kind, err := protoregistry.GlobalTypes.FindMessageByName(described.Output().FullName())
	if err != nil {
		return err
	}
	desc := &grpc.StreamDesc{ClientStreams: described.IsStreamingClient(), ServerStreams: described.IsStreamingServer()}
	stream, err := conn.NewStream(ctx, desc, "/troupe.v1.MemoryService/"+method)
	if err != nil {
		return grpcfailure.FromStatus("test", err)
	}
	_ = stream.SendMsg(req) // the error arrives with the reply
	_ = stream.CloseSend()
	for err == nil {
		err = stream.RecvMsg(kind.New().Interface())
	}
	if errors.Is(err, io.EOF) {
		return nil
	}
	return grpcfailure.FromStatus("test", err)
}

// A worker may make every request in its own turn. The list of tested methods is complete.
func TestApp_WorkerMayMakeEveryCallInItsTurn(t *testing.T) {
	s := runSecureApp(t)
	all := workerRequests(s.turn)
	ctx := s.withCredential(t, s.turn, time.Time{})
	for _, method := range authz.Methods() {
		name, ours := strings.CutPrefix(method, "/troupe.v1.MemoryService/")
		roles, _ := authz.RolesFor(method)
		if !ours || !strings.Contains(strings.Join(roleNames(roles), " "), string(identity.Worker)) {
			continue
		}
		if _, known := configurationRequests("")[name]; !known { // these methods need no turn
			require.Contains(t, all, name, "what does a worker ask there?")
		}
	}
	for _, name := range []string{
		"RenewTurn", "LoadHistory", "GetSession", "GetState", "SearchMemory", "ListArtifacts", "LoadJournal", "LoadRounds", "PutArtifact", "GetArtifact", "DeleteArtifact", "UpdateState", "Journal", "CommitStep",
	} {
		require.NoError(t, callMethod(ctx, s.worker, name, all[name]), name)
	}
	again := s.turn
	again.Epoch, again.Replay = 0, true
	require.NoError(t, callMethod(s.withCredential(t, again, time.Time{}), s.worker, "GetRecording", all["GetRecording"]))
}

// configurationRequests returns the requests that a worker may make without a turn.
func configurationRequests(agent string) map[string]proto.Message {
	return map[string]proto.Message{
		"GetConfig": &troupev1.GetConfigRequest{Agent: agent},
		"PutConfig": &troupev1.PutConfigRequest{
			Agent: agent, Protocol: troupev1.ConfigProtocol_CONFIG_PROTOCOL_MERGE,
			Delta: map[string]string{"tone": `"kind"`},
		},
	}
}

// A worker may read its configuration before its first turn and after its last one, because its certificate names
// the agent. A replayed step cannot change a configuration (ADR 0033).
func TestApp_ConfigurationNeedsNoTurn(t *testing.T) {
	s := runSecureApp(t)
	again := s.turn
	again.Epoch, again.Replay = 0, true
	for method, req := range configurationRequests("research") {
		require.NoError(t, callMethod(t.Context(), s.worker, method, req), method)
		require.NoError(t, callMethod(s.withCredential(t, s.turn, time.Time{}), s.worker, method, req), method)
		err := callMethod(s.withCredential(t, again, time.Time{}), s.worker, method, req)
		require.Equal(t, method == "PutConfig", failure.Is(err, failure.Fenced), "%s: %v", method, err)
	}
	err := callMethod(t.Context(), s.worker, "PutConfig", configurationRequests("synthesis")["PutConfig"])
	require.True(t, failure.Is(err, failure.StateViolation), "%v", err)
}

func roleNames(roles []identity.Role) (all []string) {
	for _, role := range roles {
		all = append(all, string(role))
	}
	return all
}

// A compromised worker cannot make any call without the credential of its own turn. Calls are rejected without a
// credential, with a credential of another agent, and with an expired or modified one. A credential that no
// orchestrator of the mesh signed is rejected too (guarantees S6, 4.2).
func TestApp_RejectsWorkersWithoutACredential(t *testing.T) {
	s := runSecureApp(t)
	stranger, err := identity.Open(identity.Config{DevCA: t.TempDir()}, identity.Orchestrator, "", zap.NewNop())
	require.NoError(t, err)
	worker := turncred.New(s.clientIdentity(t, identity.Worker, "research"))
	credential := func(a *turncred.Authority, turn turncred.Turn, deadline time.Time) string {
		text, err := a.Issue(turn, deadline)
		require.NoError(t, err)
		return text
	}
	good := credential(s.signer, s.turn, time.Time{})
	others := s.turn // her own session, with another agent
	others.Agent = "synthesis"
	for name, c := range map[string]struct {
		shown []string
		mode  failure.Mode
	}{
		"none":             {nil, failure.PolicySecurity},
		"nothing":          {[]string{""}, failure.PolicySecurity},
		"garbage":          {[]string{"garbage"}, failure.PolicySecurity},
		"two":              {[]string{good, good}, failure.PolicySecurity},
		"another agent's":  {[]string{credential(s.signer, others, time.Time{})}, failure.PolicySecurity},
		"another's, whole": {[]string{credential(s.signer, s.otherTurn, time.Time{})}, failure.PolicySecurity},
		"changed":          {[]string{good[:len(good)-8] + "AAAAAAAA"}, failure.PolicySecurity},
		"of a stranger":    {[]string{credential(turncred.New(stranger), s.turn, time.Time{})}, failure.PolicySecurity},
		"its own work":     {[]string{credential(worker, s.turn, time.Time{})}, failure.PolicySecurity},
		"ended":            {[]string{credential(s.signer, s.turn, time.Now().Add(-turncred.Grace))}, failure.Fenced},
	} {
		t.Run(name, func(t *testing.T) {
			ctx := metadata.NewOutgoingContext(t.Context(), metadata.MD{turnctx.CredentialKey: c.shown})
			for method, req := range workerRequests(s.turn) {
				err := callMethod(ctx, s.worker, method, req)
				require.True(t, failure.Is(err, c.mode), "%s: %v", method, err)
				require.NotContains(t, err.Error(), good[:40])
			}
		})
	}
}

// With the credential of its turn a worker can access only that turn. Sessions of other users look as if they did
// not exist. Calls for other turns or epochs are fenced (guarantees S5, S6).
func TestApp_WorkerCannotReachOtherSessions(t *testing.T) {
	s := runSecureApp(t)
	ctx := s.withCredential(t, s.turn, time.Time{})
	gone := s.otherTurn
	gone.Session, gone.ID, gone.User = "s-nil", "t-s-nil", "nil"
	for method := range workerRequests(s.turn) {
		foreign, missing := callMethod(ctx, s.worker, method, workerRequests(s.otherTurn)[method]), callMethod(ctx, s.worker, method,
			workerRequests(gone)[method])
		if method == "SearchMemory" {
			require.True(t, failure.Is(foreign, failure.PolicySecurity), "%v", foreign)
		} else {
			require.True(t, failure.Is(foreign, failure.NotFound), "%s: %v", method, foreign)
		}
		require.Equal(t, missing.Error(), strings.ReplaceAll(foreign.Error(), "bob", "nil"), method)
	}
	err := callMethod(t.Context(), s.dial(t, identity.Orchestrator, ""), "GetSession", workerRequests(gone)["GetSession"])
	require.EqualError(t, callMethod(ctx, s.worker, "GetSession", workerRequests(gone)["GetSession"]), err.Error(),
		"the store says the same of one that does not exist")
	for what, other := range map[string]turncred.Turn{
		"turn":           {Step: 1, Session: s.turn.Session, ID: "t-other", User: "ann", Epoch: s.turn.Epoch, Agent: "research"},
		"epoch before":   {Step: 1, Session: s.turn.Session, ID: s.turn.ID, User: "ann", Epoch: s.turn.Epoch + 1, Agent: "research"},
		"epoch far away": {Step: 1, Session: s.turn.Session, ID: s.turn.ID, User: "ann", Epoch: 1 << 40, Agent: "research"},
	} {
		for method, req := range workerRequests(other) {
			if _, ok := req.(interface{ GetTurnId() string }); !ok || method == "GetRecording" {
				continue
			}
			err := callMethod(ctx, s.worker, method, req)
			require.True(t, failure.Is(err, failure.Fenced), "%s, %s: %v", what, method, err)
		}
	}
}

// BenchmarkApp_SmallRead measures what the credential costs a small call. It compares the same read by an
// orchestrator, which sends no credential, and by a worker.
func BenchmarkApp_SmallRead(b *testing.B) {
	s := runSecureApp(b)
	read := func(ctx context.Context, conn *grpc.ClientConn) func(b *testing.B) {
		return func(b *testing.B) {
			service := troupev1.NewMemoryServiceClient(conn)
			for b.Loop() {
				if _, err := service.GetSession(ctx, &troupev1.MemoryServiceGetSessionRequest{SessionId: s.turn.Session}); err != nil {
					b.Fatal(err)
				}
			}
		}
	}
	b.Run("credential=none", read(b.Context(), s.dial(b, identity.Orchestrator, "")))
	b.Run("credential=shown", read(s.withCredential(b, s.turn, time.Time{}), s.worker))
}

// A worker can neither write nor read after another worker has taken over its turn, although its credential is
// still valid (guarantee S6).
func TestApp_WorkerCannotReadAfterATakeover(t *testing.T) {
	s := runSecureApp(t)
	ctx := s.withCredential(t, s.turn, time.Time{})
	require.NoError(t, callMethod(ctx, s.worker, "PutArtifact", workerRequests(s.turn)["PutArtifact"]))
	begun, err := memoryrpc.New(s.dial(t, identity.Orchestrator, "")).BeginTurn(t.Context(), memory.Begin{
		Ref: session.Ref{Session: s.turn.Session}, User: s.turn.User, TurnID: s.turn.ID, TraceID: s.turn.Trace, LostEpoch: s.turn.Epoch,
		Fingerprint: "f", Message: conversation.User("hello"), LeaseTTL: time.Minute, Window: 10,
	})
	require.NoError(t, err)
	successor := s.turn
	successor.Epoch = begun.Turn.Epoch
	require.Greater(t, successor.Epoch, s.turn.Epoch)
	for method := range workerRequests(s.turn) {
		if method == "GetRecording" {
			continue // the method needs no turn
		}
		err := callMethod(ctx, s.worker, method, workerRequests(s.turn)[method])
		require.True(t, failure.Is(err, failure.Fenced), "%s: %v", method, err)
	}
	for _, method := range []string{"LoadHistory", "GetSession", "GetState", "SearchMemory", "ListArtifacts", "GetArtifact", "CommitStep"} {
		require.NoError(t, callMethod(s.withCredential(t, successor, time.Time{}), s.worker, method, workerRequests(successor)[method]), method)
	}
}

// writingMethods are the methods with which a worker changes its turn, except CommitStep.
var writingMethods = []string{"RenewTurn", "UpdateState", "PutArtifact", "DeleteArtifact", "Journal"}

// An agent writes only in its own step and under its own name, and cannot read the journal of the next agent.
// After its step is committed, it can write nothing more, even though the turn continues (guarantee S16).
func TestApp_AgentCannotActAsAnother(t *testing.T) {
	s := runSecureApp(t)
	research := s.withCredential(t, s.turn, time.Time{})
	next := s.turn // a later turn, whose step has not begun
	next.Step = 2
	poses := workerRequests(next)
	for _, method := range []string{"Journal", "LoadJournal", "CommitStep"} {
		err := callMethod(research, s.worker, method, poses[method])
		require.True(t, failure.Is(err, failure.PolicySecurity), "%s: %v", method, err)
	}
	named := workerRequests(s.turn)["CommitStep"].(*troupev1.CommitStepRequest)
	named.Result.Agent = "synthesis"
	err := callMethod(research, s.worker, "CommitStep", named)
	require.True(t, failure.Is(err, failure.PolicySecurity), "%v", err)

	own := workerRequests(s.turn)
	require.NoError(t, callMethod(research, s.worker, "CommitStep", own["CommitStep"]))
	require.NoError(t, callMethod(research, s.worker, "CommitStep", own["CommitStep"]), "the same again is fine")
	own["UpdateState"].(*troupev1.UpdateStateRequest).RequestId = "late"
	mood := &troupev1.UpdateStateRequest{
		SessionId: s.turn.Session, TurnId: s.turn.ID, Epoch: s.turn.Epoch, RequestId: "mood",
		Delta: map[string]string{"mood": `"late"`},
	}
	shared := &troupev1.PutArtifactRequest{Item: &troupev1.PutArtifactRequest_Header{Header: &troupev1.PutArtifactHeader{
		SessionId: s.turn.Session, TurnId: s.turn.ID, Epoch: s.turn.Epoch, Artifact: &troupev1.Artifact{Name: "user:empty", Sha256: emptySHA256},
	}}}
	for _, method := range writingMethods {
		err := callMethod(research, s.worker, method, own[method])
		require.True(t, failure.Is(err, failure.TurnNotOpen), "%s: %v", method, err)
	}
	for method, req := range map[string]proto.Message{"UpdateState": mood, "PutArtifact": shared} {
		err := callMethod(research, s.worker, method, req)
		require.True(t, failure.Is(err, failure.TurnNotOpen), "%s: %v", method, err)
	}

	next.Agent = "synthesis"
	synthesis, ctx := s.dial(t, identity.Worker, "synthesis"), s.withCredential(t, next, time.Time{})
	poses = workerRequests(next)
	for _, method := range writingMethods {
		require.NoError(t, callMethod(ctx, synthesis, method, poses[method]), method)
	}
	last := poses["CommitStep"].(*troupev1.CommitStepRequest)
	last.BaseSequence = 2
	require.NoError(t, callMethod(ctx, synthesis, "CommitStep", last))
}

// After the last step has closed the turn, its worker can no longer read the session or the user's history. This
// holds even before another turn begins (guarantee S6).
func TestApp_WorkerCannotReadAfterItsTurn(t *testing.T) {
	s := runSecureApp(t)
	ctx, all := s.withCredential(t, s.turn, time.Time{}), workerRequests(s.turn)
	require.NoError(t, callMethod(ctx, s.worker, "PutArtifact", all["PutArtifact"]))
	last := all["CommitStep"].(*troupev1.CommitStepRequest)
	last.Outcome = troupev1.TurnOutcome_TURN_OUTCOME_COMPLETED
	for _, method := range []string{"LoadHistory", "GetSession", "GetState", "SearchMemory", "ListArtifacts", "GetArtifact"} {
		require.NoError(t, callMethod(ctx, s.worker, method, all[method]), method)
	}
	require.NoError(t, callMethod(ctx, s.worker, "CommitStep", last))
	require.NoError(t, callMethod(ctx, s.worker, "CommitStep", last), "the same again is fine")
	for method, req := range all {
		if method == "GetRecording" || method == "CommitStep" {
			continue
		}
		err := callMethod(ctx, s.worker, method, req)
		require.True(t, failure.Is(err, failure.TurnNotOpen), "%s: %v", method, err)
	}
}
