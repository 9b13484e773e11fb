package scenario

import (
	"fmt"
	"testing"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	troupev1 "github.com/troupe-dev/troupe/pkg/gen/troupe/v1"
	"github.com/troupe-dev/troupe/test/rig"
)

// The actor of a turn applies to that turn only (LP-18).

// requestAs returns a request with a user's credential, which the step shows to the gate.
func requestAs(verb, actor, credential string) (req *troupev1.OrchestrateRequest, key string) {
	req, key = slowRequest(verb)
	req.Auth = &troupev1.Auth{Actor: actor, Credentials: map[string]string{"gate": credential}}
	return req, key
}

// Each turn of a session has its own credentials, or none if its request contained none.
// Req: LP-18
func credentialsBelongToOneTurn(t *testing.T, s *gatedMesh) {
	session := uuid.NewString()
	for _, turn := range []struct {
		auth  *troupev1.Auth
		shown string
	}{
		{&troupev1.Auth{Actor: "alice", Credentials: map[string]string{"gate": "token-1"}}, " alice token-1"},
		{&troupev1.Auth{Actor: "alice", Credentials: map[string]string{"gate": "token-2"}}, " alice token-2"},
		{nil, ""},
		{&troupev1.Auth{Actor: "bob", Credentials: map[string]string{"other": "token-3"}}, " bob"},
		{&troupev1.Auth{}, ""},
	} {
		req, key := slowRequest("hold")
		req.SessionId, req.Auth = session, turn.auth
		s.gate.Open(key)
		require.Equal(t, troupev1.TurnOutcome_TURN_OUTCOME_COMPLETED, turnResult(runTurn(t, s.Mesh, req)).GetOutcome())
		require.Equal(t, []string{"model" + turn.shown, "tool" + turn.shown}, s.gate.Callers(key))
	}
}

// Turns of many sessions run in the same workers at once. No turn sees the credentials of another session.
// Req: LP-18
func credentialsStayInTheirSession(t *testing.T, s *gatedMesh) {
	const sessions = 3 * slowWorkers
	keys := make([]string, sessions)
	waits := make([]func() []*troupev1.Event, sessions)
	for n := range sessions {
		var req *troupev1.OrchestrateRequest
		req, keys[n] = requestAs("hold", fmt.Sprint("actor-", n), fmt.Sprint("token-", n))
		waits[n] = s.startTurn(t, req)
	}
	for _, key := range keys {
		s.gate.AwaitCall(t, key)
	}
	for n, key := range keys { // all are in the middle of their steps now
		s.gate.Open(key)
		require.Equal(t, troupev1.TurnOutcome_TURN_OUTCOME_COMPLETED, turnResult(waits[n]()).GetOutcome())
		show := fmt.Sprintf(" actor-%d token-%d", n, n)
		require.Equal(t, []string{"model" + show, "tool" + show}, s.gate.Callers(key))
	}
}

// The journal contains no credentials, so the orchestrator sends them again with the next attempt.
// Req: LP-18
func redispatchedStepHasItsCredentials(t *testing.T, s *gatedMesh) {
	req, key := requestAs("hold", "alice", "token-1")
	wait := s.startTurn(t, req)
	first := s.gate.AwaitCall(t, key)
	s.Kill(rig.Part(first))
	require.NotEqual(t, first, s.gate.AwaitCall(t, key))
	s.gate.Open(key)
	events := wait()
	require.Len(t, retractions(events), 1)
	require.Equal(t, troupev1.TurnOutcome_TURN_OUTCOME_COMPLETED, turnResult(events).GetOutcome())
	require.Equal(t, []string{"model alice token-1", "tool alice token-1", "tool alice token-1"}, s.gate.Callers(key))
	s.Start(rig.Part(first))
}
