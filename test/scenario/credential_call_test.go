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

// These tests cover calls that lack a credential. All except the search for sealed data are part of runPending.

const authRequired = troupev1.TurnOutcome_TURN_OUTCOME_AUTH_REQUIRED

// startWithoutCredential sends a request whose tool lacks a credential. It returns the pending call.
func (g *gatedMesh) startWithoutCredential(t *testing.T) (session, key string, call *troupev1.PendingCall) {
	t.Helper()
	key = uuid.NewString()
	req := textRequest("fetch " + key)
	events := runTurn(t, g.Mesh, req)
	call = pendingCredentialCall(t, events)
	return req.GetSessionId(), key, call
}

// pendingCredentialCall returns the pending call of a turn that ended because it needs a credential.
func pendingCredentialCall(t *testing.T, events []*troupev1.Event) *troupev1.PendingCall {
	t.Helper()
	require.Equal(t, authRequired, turnResult(events).GetOutcome(), "%v", turnResult(events))
	require.Len(t, turnResult(events).GetPending(), 1)
	return turnResult(events).GetPending()[0]
}

// credentialRequest returns a request that answers a call with a sealed credential.
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

// keyHoldingWorker returns the worker that holds the private key for a call.
func keyHoldingWorker(call *troupev1.PendingCall) rig.Part {
	return rig.Part(broker.InstanceFromKeyID(call.GetAuth().GetAuthId()))
}

// requireCredentials checks the calls at the gate: first one by the model, then one by the tool for each
// credential.
func (g *gatedMesh) requireCredentials(t *testing.T, key string, credentials ...string) {
	t.Helper()
	want := []string{"model"}
	for _, c := range credentials {
		want = append(want, "tool  "+c)
	}
	require.Equal(t, want, g.gate.Callers(key))
}

// A call that lacks a credential names it, and the session waits for it. The turn with the credential continues at
// the instance that asked, whose tool receives it.
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
	events := runTurn(t, s.Mesh, credentialRequest(t, session, call, "hunter2"))
	s.requireAnswer(t, events, "fetched")
	s.requireCredentials(t, key, "hunter2")
	heard := events[0].GetTurnStarted().GetAnswers()[0]
	require.Equal(t, auth.GetAuthId(), heard.GetAuthId())
	require.Empty(t, heard.GetSealed())
	for _, e := range events {
		if e.GetStepStarted() != nil {
			require.Equal(t, string(keyHoldingWorker(call)), e.GetInstanceId())
		}
	}
	// The next turn does not have the credential any more.
	again := textRequest("fetch " + uuid.NewString())
	again.SessionId = session
	pendingCredentialCall(t, runTurn(t, s.Mesh, again))
}

// Req: LP-37
func credentialRequestSurvivesTheOrchestrator(t *testing.T, s *gatedMesh) {
	session, key, call := s.startWithoutCredential(t)
	s.Kill(rig.Orchestrator)
	s.Start(rig.Orchestrator)
	s.awaitInputAgents(t)
	s.gate.Open(key)
	s.requireAnswer(t, runTurn(t, s.Mesh, credentialRequest(t, session, call, "hunter2")), "fetched")
	s.requireCredentials(t, key, "hunter2")
}

// A killed worker loses its private keys, so credentials sealed for them cannot be opened. The next worker asks
// again with a new key. Only the earlier answer is lost.
// Req: LP-37
func lostSealingKeyIsReplaced(t *testing.T, s *gatedMesh) {
	for _, back := range []bool{false, true} { // back: the worker is running again before the answer is sent
		session, key, call := s.startWithoutCredential(t)
		lost := keyHoldingWorker(call)
		s.Kill(lost)
		if back {
			s.Start(lost)
			s.awaitInputAgents(t)
		}
		events := runTurn(t, s.Mesh, credentialRequest(t, session, call, "hunter2"))
		again := pendingCredentialCall(t, events)
		require.NotEqual(t, call.GetAuth().GetAuthId(), again.GetAuth().GetAuthId())
		require.Contains(t, again.GetReason(), "It is asked for again: the key that it was sealed to is gone")
		s.requireCredentials(t, key)
		s.gate.Open(key)
		s.requireAnswer(t, runTurn(t, s.Mesh, credentialRequest(t, session, again, "hunter3")), "fetched")
		s.requireCredentials(t, key, "hunter3")
		if !back {
			s.Start(lost)
			s.awaitInputAgents(t)
		}
	}
}

// Data sealed for one session is rejected as the answer in another session.
// Req: LP-37
func sealedCredentialIsBoundToItsSession(t *testing.T, s *gatedMesh) {
	session, key, call := s.startWithoutCredential(t)
	mine := credentialRequest(t, session, call, "hunter2")
	other, otherKey, otherCall := s.startWithoutCredential(t)
	stolen := &troupev1.CallAnswer{
		Id: otherCall.GetId(), Verdict: verdictApproved, Sealed: mine.GetAnswers().GetAnswers()[0].GetSealed(),
		AuthId: call.GetAuth().GetAuthId(),
	}
	again := pendingCredentialCall(t, runTurn(t, s.Mesh, callAnswerRequest(other, stolen)))
	require.Contains(t, again.GetReason(), "It is asked for again: it was not sealed to the key of this call")
	s.requireCredentials(t, otherKey)
	s.gate.Open(key)
	s.requireAnswer(t, runTurn(t, s.Mesh, mine), "fetched")
	s.requireCredentials(t, key, "hunter2")
}

// The tool may run only once and its outcome is unknown. The user is therefore not asked for the credential again.
func lostToolWithCredentialIsNotRepeated(t *testing.T, s *gatedMesh) {
	session, key, call := s.startWithoutCredential(t)
	wait := s.startTurn(t, credentialRequest(t, session, call, "hunter2"))
	lost := rig.Part(s.gate.AwaitCall(t, key))
	require.Equal(t, keyHoldingWorker(call), lost)
	s.Kill(lost)
	events := wait()
	require.Equal(t, troupev1.TurnOutcome_TURN_OUTCOME_COMPLETED, turnResult(events).GetOutcome(), "%v", turnResult(events))
	require.Contains(t, turnResult(events).GetText(), "UNKNOWN_OUTCOME")
	s.requireCredentials(t, key, "hunter2")
	s.gate.Open(key)
	s.Start(lost)
	s.awaitInputAgents(t)
}

// Credentials are sent to a tool, to a worker that is then killed, and to a session for which they were not
// sealed. Afterwards no file of Redis or etcd, no log, no span, no metric and no answer to a client contains them.
// Clients do not receive the sealed value either.
// Req: LP-37
func TestSealedCredentialCanary_Binaries(t *testing.T) {
	t.Parallel()
	spans := collectSpans(t)
	s := &gatedMesh{rig.StartBinaries(t, rig.Config{TestWorkflows: true, LogLevel: "debug", CollectorURL: spans.url}), gate.New(t)}
	for n := range clerkCount {
		s.HostWorker(rig.InputWorker(s.gate, inputagent.Name, n+1))
	}
	s.HostWorker(rig.InputWorker(s.gate, inputagent.ShortTimeoutName, 1))
	s.awaitInputAgents(t)
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
	events := runTurn(t, s.Mesh, req)
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
	s.awaitInputAgents(t)

	session, _, call = s.startWithoutCredential(t)
	req, _ = bring("another", call)
	req.SessionId = session
	events = runTurn(t, s.Mesh, req)
	pendingCredentialCall(t, events)
	told.addTurn(t, s.Mesh, req, events)

	left := s.WrittenData()
	for _, p := range []rig.Part{rig.Orchestrator, "clerk-1", "clerk-2", rig.Memory} {
		s.Stop(p) // the part exports its last spans and writes its last log lines
	}
	maps.Copy(left, s.WrittenData())
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
