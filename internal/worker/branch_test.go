package worker_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/troupe-dev/troupe/pkg/agent"
	troupev1 "github.com/troupe-dev/troupe/pkg/gen/troupe/v1"
	"github.com/troupe-dev/troupe/pkg/llm/scripted"
	"github.com/troupe-dev/troupe/pkg/session"
)

// The messages of a step in a branch are returned in its result but are not stored in the session.
func TestExecuteStep_DoesNotStoreMessagesOfABranch(t *testing.T) {
	s := newWorkerEnv(t)
	r := s.start(t, agent.Config{Name: "a", Model: scripted.New(scripted.Reply{Deltas: []string{"Good day."}})})
	req := s.beginTurn(t, "a", "s1")
	req.Last, req.Silent = false, true
	_, result := readStep(t, r.execute(t.Context(), t, req))
	require.Nil(t, result.GetFailure())
	require.Equal(t, "Good day.", result.GetText())
	require.Equal(t, req.GetBaseSequence(), result.GetSequence())
	_, messages := s.storedSession(t, "s1")
	require.Len(t, messages, 1, "the user's")
}

// A step in a branch that would end the turn is rejected, and the turn stays open.
func TestExecuteStep_RejectsABranchThatEndsTheTurn(t *testing.T) {
	s := newWorkerEnv(t)
	r := s.start(t, agent.Config{Name: "a", AsksUser: true, Model: scripted.New(scripted.Reply{Deltas: []string{"Which one?"}})})
	req := s.beginTurn(t, "a", "s1")
	req.Last, req.Silent = false, true
	_, result := readStep(t, r.execute(t.Context(), t, req))
	require.Equal(t, troupev1.FailureMode_FAILURE_MODE_AGENT_CONTRACT, result.GetFailure().GetMode())
	found, messages := s.storedSession(t, "s1")
	require.Equal(t, session.Busy, found.State)
	require.Len(t, messages, 1)
}
