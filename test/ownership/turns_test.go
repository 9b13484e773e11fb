package ownership_test

import (
	"testing"

	"github.com/troupe-dev/troupe/test/ownership"
)

func inTurn(deed string) try {
	return func(t *testing.T, m *mesh) error { t.Helper(); return told(t, m, deed) }
}

// inTurns are the tries of the agent itself, in turns of the mesh.
var inTurns = map[ownership.Cell][]try{
	{Actor: ownership.Owner, Tier: ownership.AgentTier, Verb: ownership.Read}:         {inTurn("agent.read")},
	{Actor: ownership.Owner, Tier: ownership.AgentTier, Verb: ownership.Write}:        {inTurn("agent.write")},
	{Actor: ownership.Owner, Tier: ownership.AgentTier, Verb: ownership.Delete}:       {inTurn("agent.delete")},
	{Actor: ownership.Owner, Tier: ownership.AgentTier, Verb: ownership.Persist}:      {inTurn("agent.persist")},
	{Actor: ownership.Owner, Tier: ownership.MemoryTier, Verb: ownership.Read}:        {inTurn("memory.read")},
	{Actor: ownership.Owner, Tier: ownership.MemoryTier, Verb: ownership.Update}:      {inTurn("memory.update")},
	{Actor: ownership.Owner, Tier: ownership.MemoryTier, Verb: ownership.Write}:       {inTurn("memory.write")},
	{Actor: ownership.Owner, Tier: ownership.OrchestratorTier, Verb: ownership.Read}:  {inTurn("orchestrator.read")},
	{Actor: ownership.Owner, Tier: ownership.OrchestratorTier, Verb: ownership.Write}: {inTurn("orchestrator.write"), inTurn("orchestrator.ask")},
	{Actor: ownership.Owner, Tier: ownership.SharedTier, Verb: ownership.Read}:        {inTurn("shared.read")},
	{Actor: ownership.Owner, Tier: ownership.SharedTier, Verb: ownership.Write}:       {inTurn("shared.write")},
}
