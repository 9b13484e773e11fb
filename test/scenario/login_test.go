package scenario

import (
	"encoding/base64"
	"maps"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/troupe-dev/troupe/internal/broker"
	"github.com/troupe-dev/troupe/pkg/client"
	troupev1 "github.com/troupe-dev/troupe/pkg/gen/troupe/v1"
	"github.com/troupe-dev/troupe/pkg/secret"
	"github.com/troupe-dev/troupe/test/rig"
	"github.com/troupe-dev/troupe/test/rig/gate"
	"github.com/troupe-dev/troupe/test/rig/inputagent"
)

// Calls that lack a credential. They are part of runPending, except for the search for the sealed data.

const authRequired = troupev1.TurnOutcome_TURN_OUTCOME_AUTH_REQUIRED

// startWithoutCredential sends a request whose tool lacks a credential, and returns the pending call.
func (s *gatedMesh) startWithoutCredential(t *testing.T) (session, key string, call *troupev1.PendingCall) {
	t.Helper()
	key = uuid.NewString()
	req := text("fetch " + key)
	events := ask(t, s.Mesh, req)
	call = pendingLogin(t, events)
	return req.GetSessionId(), key, call
}

// pendingLogin returns the call of a turn that ended because it needs a credential.
func pendingLogin(t *testing.T, events []*troupev1.Event) *troupev1.PendingCall {
	t.Helper()
	require.Equal(t, authRequired, result(events).GetOutcome(), "%v", result(events))
	require.Len(t, result(events).GetPending(), 1)
	return result(events).GetPending()[0]
}

// credentialRequest returns a request with the sealed credential for a call.
func credentialRequest(t *testing.T, session string, call *troupev1.PendingCall, credential string) *troupev1.OrchestrateRequest {
	t.Helper()
	sealed, err := client.Seal(session, call, secret.New(credential))
	require.NoError(t, err)
	return callAnswerRequest(session, sealed)
}

func callAnswerRequest(session string, a *troupev1.CallAnswer) *troupev1.OrchestrateRequest {
	req := verdictRequest(session, a.GetId(), a.GetVerdict(), "")
	req.GetAnswers().Answers[0] = a
	return req
}

// keyHolder returns the worker that holds the private key for a call.
func keyHolder(call *troupev1.PendingCall) rig.Part {
	return rig.Part(broker.InstanceFromKeyID(call.GetAuth().GetAuthId()))
}

// requireCredentials checks the calls at the gate: one of the model, then one of the tool for each credential.
func (s *gatedMesh) requireCredentials(t *testing.T, key string, credentials ...string) {
	t.Helper()
	want := []string{"model"}
	for _, c := range credentials {
		want = append(want, "tool  "+c)
	}
	require.Equal(t, want, s.gate.Callers(key))
}

// The call names what it lacks and the session waits for it. The turn with the credential continues at the
// instance that asked, and its tool gets it.
// Req: LP-37, LP-40
func credentialReachesTheWaitingTool(t *testing.T, s *gatedMesh) {
	session, key, call := s.startWithoutCredential(t)
	require.Equal(t, troupev1.CallNeed_CALL_NEED_AUTH, call.GetNeeds())
	auth := call.GetAuth()
	require.Equal(t, inputagent.Credential, auth.GetName())
	require.Equal(t, "The password of your mailbox.", auth.GetPrompt())
	require.Equal(t, "https://mail.example.org/passwords", auth.GetUrl())
	require.InDelta(t, (15 * time.Minute).Seconds(), time.Until(auth.GetExpires().AsTime()).Seconds(), 60)
	seen, err := s.Sessions.GetSession(t.Context(), &troupev1.GetSessionRequest{SessionId: session})
	require.NoError(t, err)
	require.Equal(t, troupev1.SessionState_SESSION_STATE_AUTH_REQUIRED, seen.GetSession().GetState())
	require.Equal(t, auth.GetPublicKey(), seen.GetSession().GetPending()[0].GetAuth().GetPublicKey())

	s.gate.Open(key)
	events := ask(t, s.Mesh, credentialRequest(t, session, call, "hunter2"))
	s.requireAnswer(t, events, "fetched")
	s.requireCredentials(t, key, "hunter2")
	heard := events[0].GetTurnStarted().GetAnswers()[0]
	require.Equal(t, auth.GetAuthId(), heard.GetAuthId())
	require.Empty(t, heard.GetSealed())
	for _, e := range events {
		if e.GetStepStarted() != nil {
			require.Equal(t, string(keyHolder(call)), e.GetInstanceId())
		}
	}
	// The next turn does not have it any more.
	again := text("fetch " + uuid.NewString())
	again.SessionId = session
	pendingLogin(t, ask(t, s.Mesh, again))
}

// Req: LP-37
func credentialRequestSurvivesTheOrchestrator(t *testing.T, s *gatedMesh) {
	session, key, call := s.startWithoutCredential(t)
	s.Kill(rig.Orchestrator)
	s.Start(rig.Orchestrator)
	s.awaitClerks(t)
	s.gate.Open(key)
	s.requireAnswer(t, ask(t, s.Mesh, credentialRequest(t, session, call, "hunter2")), "fetched")
	s.requireCredentials(t, key, "hunter2")
}

// A killed worker loses its keys, so data sealed for them cannot be opened. The next worker asks for the
// credential again with a new key, and only the earlier answer is lost.
//
// Req: LP-37
func lostSealingKeyIsReplaced(t *testing.T, s *gatedMesh) {
	for _, back := range []bool{false, true} { // the worker, before the answer comes
		session, key, call := s.startWithoutCredential(t)
		lost := keyHolder(call)
		s.Kill(lost)
		if back {
			s.Start(lost)
			s.awaitClerks(t)
		}
		events := ask(t, s.Mesh, credentialRequest(t, session, call, "hunter2"))
		again := pendingLogin(t, events)
		require.NotEqual(t, call.GetAuth().GetAuthId(), again.GetAuth().GetAuthId())
		require.Contains(t, again.GetReason(), "It is asked for again: the key that it was sealed to is gone")
		s.requireCredentials(t, key)
		s.gate.Open(key)
		s.requireAnswer(t, ask(t, s.Mesh, credentialRequest(t, session, again, "hunter3")), "fetched")
		s.requireCredentials(t, key, "hunter3")
		if !back {
			s.Start(lost)
			s.awaitClerks(t)
		}
	}
}

// Data sealed for one session are rejected as the answer in another session.
// Req: LP-37
func sealedCredentialIsBoundToItsSession(t *testing.T, s *gatedMesh) {
	session, key, call := s.startWithoutCredential(t)
	mine := credentialRequest(t, session, call, "hunter2")
	other, otherKey, otherCall := s.startWithoutCredential(t)
	stolen := &troupev1.CallAnswer{
		Id: otherCall.GetId(), Verdict: approved, Sealed: mine.GetAnswers().GetAnswers()[0].GetSealed(),
		AuthId: call.GetAuth().GetAuthId(),
	}
	again := pendingLogin(t, ask(t, s.Mesh, callAnswerRequest(other, stolen)))
	require.Contains(t, again.GetReason(), "It is asked for again: it was not sealed to the key of this call")
	s.requireCredentials(t, otherKey)
	s.gate.Open(key)
	s.requireAnswer(t, ask(t, s.Mesh, mine), "fetched")
	s.requireCredentials(t, key, "hunter2")
}

// The tool may run only once and its outcome is unknown, so the user is not asked for the credential again.
func lostToolWithCredentialIsNotRepeated(t *testing.T, s *gatedMesh) {
	session, key, call := s.startWithoutCredential(t)
	wait := s.startTurn(t, credentialRequest(t, session, call, "hunter2"))
	lost := rig.Part(s.gate.AwaitCall(t, key))
	require.Equal(t, keyHolder(call), lost)
	s.Kill(lost)
	events := wait()
	require.Equal(t, troupev1.TurnOutcome_TURN_OUTCOME_COMPLETED, result(events).GetOutcome(), "%v", result(events))
	require.Contains(t, result(events).GetText(), "UNKNOWN_OUTCOME")
	s.requireCredentials(t, key, "hunter2")
	s.gate.Open(key)
	s.Start(lost)
	s.awaitClerks(t)
}

// A credential is sent to a tool, to a worker that is killed with it, and to a session that it was not sealed
// for. Afterwards it is in no file of Redis or etcd, no log, no span, no metric, and nothing that a client
// received. Clients do not receive the sealed value either.
//
// Req: LP-37
func TestLoginCanary_Binaries(t *testing.T) {
	t.Parallel()
	spans := collectSpans(t)
	s := &gatedMesh{rig.Binaries(t, rig.Config{TestWorkflows: true, LogLevel: "debug", Collector: spans.url}), gate.New(t)}
	for n := range clerks {
		s.Host(rig.InputWorker(s.gate, inputagent.Name, n+1))
	}
	s.Host(rig.InputWorker(s.gate, inputagent.Hurried, 1))
	s.awaitClerks(t)
	canary := "CANARY" + strings.ReplaceAll(uuid.NewString(), "-", "")
	told := &clientRecord{traces: map[string]string{}}
	var sealed []string
	bring := func(session string, call *troupev1.PendingCall) (*troupev1.OrchestrateRequest, string) {
		req := credentialRequest(t, session, call, canary)
		text := string(req.GetAnswers().GetAnswers()[0].GetSealed())
		sealed = append(sealed, base64.StdEncoding.EncodeToString([]byte(text)))
		return req, text
	}
	session, key, call := s.startWithoutCredential(t)
	s.gate.Open(key)
	req, kept := bring(session, call)
	events := ask(t, s.Mesh, req)
	told.addTurn(t, s.Mesh, req, events)
	s.requireAnswer(t, events, "fetched")
	s.requireCredentials(t, key, canary)

	session, key2, call := s.startWithoutCredential(t)
	req, _ = bring(session, call)
	wait := s.startTurn(t, req)
	lost := rig.Part(s.gate.AwaitCall(t, key2))
	s.Kill(lost)
	told.addTurn(t, s.Mesh, req, wait())
	s.Start(lost)
	s.awaitClerks(t)

	session, _, call = s.startWithoutCredential(t)
	req, _ = bring("another", call)
	req.SessionId = session
	events = ask(t, s.Mesh, req)
	pendingLogin(t, events)
	told.addTurn(t, s.Mesh, req, events)

	left := s.Residue()
	for _, p := range []rig.Part{rig.Orchestrator, "clerk-1", "clerk-2", rig.Memory} {
		s.Stop(p) // its last spans leave it, and its last lines
	}
	maps.Copy(left, s.Residue())
	left["spans"], left["told"] = spans.all(), told.all()
	holding := func(what string) string { return strings.Join(placesContaining(left, what), "\n") }
	require.Contains(t, holding(key), "redis /dump.rdb")
	require.Contains(t, holding(key), "told")
	require.Contains(t, holding("execute_tool fetch"), "spans")
	require.Contains(t, holding(kept), "redis /dump.rdb", "the search finds what is sealed")
	require.Contains(t, holding(call.GetAuth().GetAuthId()), "told")
	require.Empty(t, placesContaining(left, canary))
	for _, text := range sealed {
		require.Empty(t, placesContaining(left, text))
	}
}
