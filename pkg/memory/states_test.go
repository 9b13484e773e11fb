package memory_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/troupe-dev/troupe/pkg/conversation"
	"github.com/troupe-dev/troupe/pkg/execution"
	"github.com/troupe-dev/troupe/pkg/failure"
	"github.com/troupe-dev/troupe/pkg/memory"
	"github.com/troupe-dev/troupe/pkg/memory/inmem"
	"github.com/troupe-dev/troupe/pkg/session"
)

// Troupe adopted the session states of an agent framework whose later versions have seven states, without start
// and pause. Each of the seven states corresponds to a state of Troupe (C-1). It is reached in the same way and
// accepts turns under the same conditions. In Troupe, too, a session in error accepts the next turn (LP-10b). A
// session needs no start before its first turn and no resume after a pause.
// Req: LP-40, C-1
func TestStates_CoverStatesOfTheOriginalFramework(t *testing.T) {
	for _, row := range []struct {
		theirs  string
		ours    session.State
		accepts bool // whether a session in this state accepts a turn
		reach   func(s *testSession)
	}{
		{"created", session.Created, true, func(s *testSession) { s.update(memory.SessionUpdate{Create: true}) }},
		{"idle", session.Ready, true, func(s *testSession) { s.runTurn(session.OutcomeCompleted) }},
		{"idle", session.Ready, true, func(s *testSession) { s.runTurn(session.OutcomeCancelled) }},
		{"busy", session.Busy, false, func(s *testSession) { s.runTurn(session.OutcomeOpen) }},
		{"waiting-input", session.InputRequired, true, func(s *testSession) { s.runTurn(session.OutcomeInputRequired) }},
		{"waiting-auth", session.AuthRequired, true, func(s *testSession) { s.runTurn(session.OutcomeAuthRequired) }},
		{"shutdown", session.Closed, false, func(s *testSession) {
			s.runTurn(session.OutcomeCompleted)
			s.update(memory.SessionUpdate{Verb: session.Close})
		}},
		{"error", session.Failed, true, func(s *testSession) { s.runTurn(session.OutcomeFailed) }},
		{"", session.Paused, true, func(s *testSession) {
			s.runTurn(session.OutcomeCompleted)
			s.update(memory.SessionUpdate{Verb: session.Pause})
		}},
	} {
		t.Run(fmt.Sprintf("%s is %s", row.theirs, row.ours), func(t *testing.T) {
			s := &testSession{t: t, store: inmem.New(inmem.Config{}), ref: session.Ref{Tenant: "default", Session: "s1"}}
			row.reach(s)
			require.Equal(t, row.ours, s.state())
			_, err := s.begin()
			if !row.accepts {
				require.True(t, failure.Is(err, failure.SessionBusy, failure.SessionClosed), "%v", err)
				require.Equal(t, row.ours, s.state())
				return
			}
			require.NoError(t, err)
			require.Equal(t, session.Busy, s.state())
		})
	}
}

// testSession is one session in the store under test.
type testSession struct {
	t     *testing.T
	store memory.Store
	ref   session.Ref
	turns int
}

func (s *testSession) state() session.State {
	s.t.Helper()
	got, err := s.store.GetSession(s.t.Context(), s.ref)
	require.NoError(s.t, err)
	return got.State
}

func (s *testSession) update(u memory.SessionUpdate) {
	s.t.Helper()
	u.Ref = s.ref
	_, err := s.store.UpdateSession(s.t.Context(), u)
	require.NoError(s.t, err)
}

func (s *testSession) begin() (memory.BeginResult, error) {
	s.turns++
	return s.store.BeginTurn(s.t.Context(), memory.Begin{
		Ref: s.ref, TurnID: fmt.Sprintf("t%d", s.turns), TraceID: "0af7651916cd43dd8448eb211c80319c", Fingerprint: "f",
		Message: conversation.User("hello"), LeaseTTL: time.Minute, Window: 1,
	})
}

// runTurn runs a turn that ends with this outcome.
func (s *testSession) runTurn(outcome session.Outcome) {
	s.t.Helper()
	begun, err := s.begin()
	require.NoError(s.t, err)
	switch outcome {
	case session.OutcomeOpen:
	case session.OutcomeFailed, session.OutcomeCancelled:
		_, err = s.store.FailTurn(s.t.Context(), memory.Fail{
			Ref: s.ref, TurnID: begun.Turn.ID, Epoch: begun.Turn.Epoch, Outcome: outcome, Failure: failure.New(failure.AgentLogic, "test", "it broke"),
		})
	default:
		_, err = s.store.CommitStep(s.t.Context(), memory.Commit{
			Ref: s.ref, TurnID: begun.Turn.ID, Epoch: begun.Turn.Epoch, Base: begun.Turn.Sequence, Outcome: outcome,
			Messages: []conversation.Message{conversation.Assistant("echo", "Well.")},
			Result:   execution.Result{Step: 1, Agent: "echo", Text: "Well.", InputRequired: outcome == session.OutcomeInputRequired},
		})
	}
	require.NoError(s.t, err)
}
