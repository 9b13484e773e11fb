package turn

import (
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/proto"

	"github.com/troupe-dev/troupe/pkg/execution"
	"github.com/troupe-dev/troupe/pkg/secret"
	"github.com/troupe-dev/troupe/pkg/session"
	"github.com/troupe-dev/troupe/services/orchestrator/internal/trace"
	"github.com/troupe-dev/troupe/services/orchestrator/internal/turn/request"
	"github.com/troupe-dev/troupe/services/orchestrator/internal/turn/run"
)

// requestWithAuth returns a request with credentials of a user.
func requestWithAuth(actor, sessionID, requestID string) request.Request {
	req := textRequest(sessionID, requestID)
	req.Auth = execution.Auth{Actor: actor, Credentials: map[string]secret.Value{"github": secret.New("token of " + actor)}}
	return req
}

// requireCredentials checks which user's credentials each step received, in order (empty means none).
func (r *rig) requireCredentials(t *testing.T, actors ...string) {
	t.Helper()
	var got []string
	for _, req := range r.receivedSteps() {
		auth := req.GetAuth()
		got = append(got, auth.GetActor())
		if auth != nil {
			require.Equal(t, map[string]string{"github": "token of " + auth.GetActor()}, auth.GetCredentials())
		}
	}
	require.Empty(t, cmp.Diff(actors, got))
}

// Req: LP-18
func TestTurn_PassesItsCredentialsToItsOwnStepsOnly(t *testing.T) {
	rig := newRig(t)
	rig.addInstances("research", 1)
	rig.setScript("research", func(s *scriptedStep) error {
		rig.setScript("research", nil)
		return s.cutConnections()
	})
	runner := rig.newRunner(t, "one")
	first := runToEnd(t, runner, requestWithAuth("alice", "s1", "r1"))
	require.Equal(t, outcomeCompleted, turnResult(first).GetOutcome())
	runToEnd(t, runner, requestWithAuth("bob", "s1", "r2"))
	runToEnd(t, runner, textRequest("s1", "r3"))
	rig.requireCredentials(t, "alice", "alice", "alice", "alice", "bob", "bob", "bob", "", "", "")

	runToEnd(t, runner, requestWithAuth("carol", "s1", "r1"))
	require.Len(t, rig.receivedSteps(), 10, "the auth is no part of what the request asks")
	record, err := runner.cfg.Traces.Store().Get(t.Context(), trace.Ref{Trace: first[0].GetTraceId()})
	require.NoError(t, err)
	messages := []proto.Message{record}
	for _, e := range first {
		messages = append(messages, e)
	}
	for _, m := range messages {
		require.NotContains(t, fmt.Sprint(m), "token of")
		require.NotContains(t, fmt.Sprint(m), "alice")
	}
	history, err := rig.memory.LoadHistory(t.Context(), session.Ref{Session: "s1"}, 0, 100)
	require.NoError(t, err)
	require.NotContains(t, fmt.Sprint(history), "token of")
}

// After a takeover, the turn uses only the credentials of the request that took it over.
func TestTurn_TakeoverUsesTheCredentialsOfItsOwnRequest(t *testing.T) {
	for name, c := range map[string]struct {
		again request.Request
		actor string
	}{
		"another": {requestWithAuth("bob", "s1", "r1"), "bob"},
		"none":    {textRequest("s1", "r1"), ""},
	} {
		t.Run(name, func(t *testing.T) {
			rig := newRig(t)
			working := make(chan struct{})
			rig.setScript("synthesis", func(s *scriptedStep) error {
				rig.setScript("synthesis", nil)
				close(working)
				<-s.stream.Context().Done()
				return s.stream.Context().Err()
			})
			runUntilStepStarts(t, rig.newRunner(t, "one"), requestWithAuth("alice", "s1", "r1"), "synthesis")
			receive(t, working)
			rig.expireLeases()
			events := runToEnd(t, rig.newRunner(t, "two"), c.again)
			require.Equal(t, outcomeCompleted, turnResult(events).GetOutcome(), "%v", turnResult(events))
			rig.requireCredentials(t, "alice", "alice", "alice", c.actor)
		})
	}
}

// A request that attaches to a running turn leaves its credentials unchanged.
func TestRunner_AttachingDoesNotChangeCredentials(t *testing.T) {
	rig := newRig(t)
	runner := rig.newRunner(t, "one")
	attached := make(chan struct{})
	rig.setScript("research", func(s *scriptedStep) error { <-attached; return s.commitAnswer("I am research.") })
	runUntilStepStarts(t, runner, requestWithAuth("alice", "s1", "r1"), "research")
	runToEnd(t, runner, requestWithAuth("bob", "s1", "r1"), func() { close(attached) })
	rig.requireCredentials(t, "alice", "alice", "alice")
}

func TestRequest_PrintsNoCredential(t *testing.T) {
	req := requestWithAuth("alice", "s1", "r1")
	for _, verb := range []string{"%v", "%+v", "%#v"} {
		require.NotContains(t, fmt.Sprintf(verb, req), "token")
		require.NotContains(t, fmt.Sprintf(verb, &run.BegunTurn{Request: req}), "token of")
	}
	require.Equal(t, textRequest("s1", "r1").Fingerprint(), req.Fingerprint())
}
