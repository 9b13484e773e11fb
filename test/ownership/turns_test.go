package ownership_test

import (
	"testing"

	"github.com/troupe-dev/troupe/test/ownership"
)

func actionInTurn(deed string) access {
	return func(t *testing.T, m *mesh) error { t.Helper(); return runAction(t, m, deed) }
}

// turnAccesses maps each cell of the owner agent to accesses that it makes inside its turns.
var turnAccesses = map[ownership.Cell][]access{
	{Actor: ownership.Owner, Tier: ownership.AgentTier, Verb: ownership.Read}:         {actionInTurn("agent.read")},
	{Actor: ownership.Owner, Tier: ownership.AgentTier, Verb: ownership.Write}:        {actionInTurn("agent.write")},
	{Actor: ownership.Owner, Tier: ownership.AgentTier, Verb: ownership.Delete}:       {actionInTurn("agent.delete")},
	{Actor: ownership.Owner, Tier: ownership.AgentTier, Verb: ownership.Persist}:      {actionInTurn("agent.persist")},
	{Actor: ownership.Owner, Tier: ownership.MemoryTier, Verb: ownership.Read}:        {actionInTurn("memory.read")},
	{Actor: ownership.Owner, Tier: ownership.MemoryTier, Verb: ownership.Update}:      {actionInTurn("memory.update")},
	{Actor: ownership.Owner, Tier: ownership.MemoryTier, Verb: ownership.Write}:       {actionInTurn("memory.write")},
	{Actor: ownership.Owner, Tier: ownership.OrchestratorTier, Verb: ownership.Read}:  {actionInTurn("orchestrator.read")},
	{Actor: ownership.Owner, Tier: ownership.OrchestratorTier, Verb: ownership.Write}: {actionInTurn("orchestrator.write"), actionInTurn("orchestrator.ask")},
	{Actor: ownership.Owner, Tier: ownership.SharedTier, Verb: ownership.Read}:        {actionInTurn("shared.read")},
	{Actor: ownership.Owner, Tier: ownership.SharedTier, Verb: ownership.Write}:       {actionInTurn("shared.write")},
}
