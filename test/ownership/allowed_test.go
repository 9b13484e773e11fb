package ownership_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	troupev1 "github.com/troupe-dev/troupe/pkg/gen/troupe/v1"
	"github.com/troupe-dev/troupe/test/ownership"
)

// allowed are accesses of whole processes that must work.
var allowed = map[ownership.Cell][]try{
	{Actor: ownership.Other, Tier: ownership.MemoryTier, Verb: ownership.Read}:       {readsItsOwn},
	{Actor: ownership.Other, Tier: ownership.MemoryTier, Verb: ownership.Update}:     {changesItsOwn},
	{Actor: ownership.Other, Tier: ownership.OrchestratorTier, Verb: ownership.Read}: {seesItsTrace},
	{Actor: ownership.Other, Tier: ownership.SharedTier, Verb: ownership.Read}:       {reads(ownership.Other)},

	{Actor: ownership.Memory, Tier: ownership.MemoryTier, Verb: ownership.Read}:    {serves},
	{Actor: ownership.Memory, Tier: ownership.MemoryTier, Verb: ownership.Persist}: {keeps},
	{Actor: ownership.Memory, Tier: ownership.MemoryTier, Verb: ownership.Delete}:  {forgets},

	{Actor: ownership.Orchestrator, Tier: ownership.AgentTier, Verb: ownership.Read}:          {observes(ownership.Orchestrator).without},
	{Actor: ownership.Orchestrator, Tier: ownership.MemoryTier, Verb: ownership.Read}:         {serves},
	{Actor: ownership.Orchestrator, Tier: ownership.OrchestratorTier, Verb: ownership.Create}: {inTurn("orchestrator.read")},
	{Actor: ownership.Orchestrator, Tier: ownership.OrchestratorTier, Verb: ownership.Read}:   {traces},
	{Actor: ownership.Orchestrator, Tier: ownership.SharedTier, Verb: ownership.Read}:         {reads(ownership.Orchestrator)},
}

// readsItsOwn reads the session of another agent's own turn.
func readsItsOwn(t *testing.T, m *mesh) error {
	return allow(reading(m.showing(t, ownership.Other), m.memory(ownership.Other), m.turns[ownership.Other])...)
}

// changesItsOwn asks for a change in another agent's own turn.
func changesItsOwn(t *testing.T, m *mesh) error {
	return allow(update(m.showing(t, ownership.Other), m.memory(ownership.Other), m.turns[ownership.Other], "mood"))
}

// reads the configuration of the scribe.
func reads(as ownership.Actor) try {
	return func(t *testing.T, m *mesh) error {
		t.Helper()
		r, err := m.memory(as).GetConfig(t.Context(), &troupev1.GetConfigRequest{Agent: scribe})
		require.Equal(t, map[string]string{"tone": `"kind"`}, r.GetConfig().GetValues())
		return allow(err)
	}
}

// serves reads a session as the orchestrator does, which routes by it.
func serves(t *testing.T, m *mesh) error {
	t.Helper()
	memory := m.memory(ownership.Orchestrator)
	return allow(
		errOf(memory.GetSession(t.Context(), &troupev1.MemoryServiceGetSessionRequest{SessionId: session})),
		errOf(memory.LoadHistory(t.Context(), &troupev1.LoadHistoryRequest{SessionId: session, Limit: 5})),
		errOf(memory.GetState(t.Context(), &troupev1.MemoryServiceGetStateRequest{SessionId: session})))
}

// keeps checks that requested changes are in Redis, and that the agent's own state is not.
func keeps(t *testing.T, m *mesh) error {
	t.Helper()
	stored, err := m.redis.HGetAll(t.Context(), "m:{default/"+session+"}:state").Result()
	require.Equal(t, `"good"`, stored["v:mood"])
	require.NotContains(t, stored, "v:_kept")
	return err
}

// forgets deletes a session that was created for it.
func forgets(t *testing.T, m *mesh) error {
	t.Helper()
	const other = "to-be-forgotten"
	require.NoError(t, toldIn(t, m, other, "memory.update"))
	_, err := m.Sessions.DeleteSession(t.Context(), &troupev1.DeleteSessionRequest{SessionId: other})
	left, wrong := m.redis.Exists(t.Context(), "m:{default/"+other+"}:log", "m:{default/"+other+"}:state").Result()
	require.NoError(t, wrong)
	require.Zero(t, left)
	return allow(err)
}

// traces reads the trace of the last turn.
func traces(t *testing.T, m *mesh) error {
	t.Helper()
	list, err := m.ListTraces(t.Context(), &troupev1.ListTracesRequest{})
	require.NoError(t, err)
	require.NotEmpty(t, list.GetTraces())
	return allow(errOf(m.GetTrace(t.Context(), &troupev1.GetTraceRequest{TraceId: list.GetTraces()[0].GetTraceId()})))
}
