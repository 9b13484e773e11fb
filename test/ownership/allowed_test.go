package ownership_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	troupev1 "github.com/troupe-dev/troupe/pkg/gen/troupe/v1"
	"github.com/troupe-dev/troupe/test/ownership"
)

// allowedAccesses maps each allowed cell of a whole process to accesses that must succeed.
var allowedAccesses = map[ownership.Cell][]access{
	{Actor: ownership.Other, Tier: ownership.MemoryTier, Verb: ownership.Read}:       {readOwnSession},
	{Actor: ownership.Other, Tier: ownership.MemoryTier, Verb: ownership.Update}:     {changeOwnState},
	{Actor: ownership.Other, Tier: ownership.OrchestratorTier, Verb: ownership.Read}: {readParentTrace},
	{Actor: ownership.Other, Tier: ownership.SharedTier, Verb: ownership.Read}:       {readConfig(ownership.Other)},

	{Actor: ownership.Memory, Tier: ownership.MemoryTier, Verb: ownership.Read}:    {readSessionAsOrchestrator},
	{Actor: ownership.Memory, Tier: ownership.MemoryTier, Verb: ownership.Persist}: {checkStoredState},
	{Actor: ownership.Memory, Tier: ownership.MemoryTier, Verb: ownership.Delete}:  {deleteSession},

	{Actor: ownership.Orchestrator, Tier: ownership.AgentTier, Verb: ownership.Read}:          {statusTrial(ownership.Orchestrator).tryUnguarded},
	{Actor: ownership.Orchestrator, Tier: ownership.MemoryTier, Verb: ownership.Read}:         {readSessionAsOrchestrator},
	{Actor: ownership.Orchestrator, Tier: ownership.OrchestratorTier, Verb: ownership.Create}: {actionInTurn("orchestrator.read")},
	{Actor: ownership.Orchestrator, Tier: ownership.OrchestratorTier, Verb: ownership.Read}:   {readLatestTrace},
	{Actor: ownership.Orchestrator, Tier: ownership.SharedTier, Verb: ownership.Read}:         {readConfig(ownership.Orchestrator)},
}

// readOwnSession reads the session of the other agent's own turn, as that agent.
func readOwnSession(t *testing.T, m *mesh) error {
	return firstError(readSession(m.withCredential(t, ownership.Other), m.memory(ownership.Other), m.turns[ownership.Other])...)
}

// changeOwnState requests a state change in the other agent's own turn, as that agent.
func changeOwnState(t *testing.T, m *mesh) error {
	return firstError(updateState(m.withCredential(t, ownership.Other), m.memory(ownership.Other), m.turns[ownership.Other], "mood"))
}

// readConfig returns an access that reads the configuration of the owner.
func readConfig(as ownership.Actor) access {
	return func(t *testing.T, m *mesh) error {
		t.Helper()
		r, err := m.memory(as).GetConfig(t.Context(), &troupev1.GetConfigRequest{Agent: ownerAgent})
		require.Equal(t, map[string]string{"tone": `"kind"`}, r.GetConfig().GetValues())
		return firstError(err)
	}
}

// readSessionAsOrchestrator reads the session as the orchestrator does for a routing decision.
func readSessionAsOrchestrator(t *testing.T, m *mesh) error {
	t.Helper()
	memory := m.memory(ownership.Orchestrator)
	return firstError(
		errorOnly(memory.GetSession(t.Context(), &troupev1.MemoryServiceGetSessionRequest{SessionId: sessionID})),
		errorOnly(memory.LoadHistory(t.Context(), &troupev1.LoadHistoryRequest{SessionId: sessionID, Limit: 5})),
		errorOnly(memory.GetState(t.Context(), &troupev1.MemoryServiceGetStateRequest{SessionId: sessionID})))
}

// checkStoredState checks that Redis holds the requested state changes and does not hold the agent's own
// state.
func checkStoredState(t *testing.T, m *mesh) error {
	t.Helper()
	stored, err := m.redis.HGetAll(t.Context(), "m:{default/"+sessionID+"}:state").Result()
	require.Equal(t, `"good"`, stored["v:mood"])
	require.NotContains(t, stored, "v:_kept")
	return err
}

// deleteSession creates and deletes a session, and checks that Redis then holds no data of it.
func deleteSession(t *testing.T, m *mesh) error {
	t.Helper()
	const other = "to-be-forgotten"
	require.NoError(t, runActionIn(t, m, other, "memory.update"))
	_, err := m.Sessions.DeleteSession(t.Context(), &troupev1.DeleteSessionRequest{SessionId: other})
	left, wrong := m.redis.Exists(t.Context(), "m:{default/"+other+"}:log", "m:{default/"+other+"}:state").Result()
	require.NoError(t, wrong)
	require.Zero(t, left)
	return firstError(err)
}

// readLatestTrace reads the trace of the last turn.
func readLatestTrace(t *testing.T, m *mesh) error {
	t.Helper()
	list, err := m.ListTraces(t.Context(), &troupev1.ListTracesRequest{})
	require.NoError(t, err)
	require.NotEmpty(t, list.GetTraces())
	return firstError(errorOnly(m.GetTrace(t.Context(), &troupev1.GetTraceRequest{TraceId: list.GetTraces()[0].GetTraceId()})))
}
