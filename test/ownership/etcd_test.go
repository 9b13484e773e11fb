package ownership_test

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/troupe-dev/troupe/pkg/failure"
	"github.com/troupe-dev/troupe/test/etcdtest"
	"github.com/troupe-dev/troupe/test/ownership"
)

// The keys of each tier in etcd.
const (
	registrationKey = "/troupe/v1/reg/" + ownerAgent + "/owner-1"     // AGENT, and the protocol of SHARED
	desiredKey      = "/troupe/v1/desired/" + ownerAgent + "/owner-1" // ORCHESTRATOR
	storeRecordKey  = "/troupe/v1/store/redis"                        // MEMORY
)

// etcdTrials are forbidden accesses to etcd, each with the certificate of its actor.
var etcdTrials = map[ownership.Cell][]trial{
	{Actor: ownership.Owner, Tier: ownership.MemoryTier, Verb: ownership.Write}:       {putTrial(ownership.Owner, storeRecordKey)},
	{Actor: ownership.Owner, Tier: ownership.OrchestratorTier, Verb: ownership.Write}: {putTrial(ownership.Owner, desiredKey)},

	{Actor: ownership.Other, Tier: ownership.AgentTier, Verb: ownership.Read}:             {getTrial(ownership.Other, registrationKey)},
	{Actor: ownership.Other, Tier: ownership.AgentTier, Verb: ownership.Write}:            {putTrial(ownership.Other, registrationKey)},
	{Actor: ownership.Other, Tier: ownership.MemoryTier, Verb: ownership.Write}:           {putTrial(ownership.Other, storeRecordKey)},
	{Actor: ownership.Other, Tier: ownership.MemoryTier, Verb: ownership.ReadBeyondScope}: {getTrial(ownership.Other, storeRecordKey)},
	{Actor: ownership.Other, Tier: ownership.OrchestratorTier, Verb: ownership.Write}:     {putTrial(ownership.Other, desiredKey)},
	{Actor: ownership.Other, Tier: ownership.SharedTier, Verb: ownership.Write}:           {putTrial(ownership.Other, registrationKey)},

	{Actor: ownership.Memory, Tier: ownership.AgentTier, Verb: ownership.Read}:         {getTrial(ownership.Memory, registrationKey)},
	{Actor: ownership.Memory, Tier: ownership.AgentTier, Verb: ownership.Write}:        {putTrial(ownership.Memory, registrationKey)},
	{Actor: ownership.Memory, Tier: ownership.OrchestratorTier, Verb: ownership.Write}: {putTrial(ownership.Memory, desiredKey)},

	{Actor: ownership.Orchestrator, Tier: ownership.AgentTier, Verb: ownership.Write}:  {putTrial(ownership.Orchestrator, registrationKey)},
	{Actor: ownership.Orchestrator, Tier: ownership.MemoryTier, Verb: ownership.Write}: {putTrial(ownership.Orchestrator, storeRecordKey)},
	{Actor: ownership.Orchestrator, Tier: ownership.SharedTier, Verb: ownership.Write}: {putTrial(ownership.Orchestrator, registrationKey)},
}

func getTrial(as ownership.Actor, key string) trial { return etcdTrial(as, key, etcdtest.MayRead) }
func putTrial(as ownership.Actor, key string) trial { return etcdTrial(as, key, etcdtest.MayWrite) }

// etcdTrial returns a trial that accesses a key in etcd. An etcd without users permits every access.
func etcdTrial(as ownership.Actor, key string, may func(testing.TB, *clientv3.Client, string) bool) trial {
	return trial{
		tryForbidden: func(t *testing.T, m *mesh) error {
			t.Helper()
			require.False(t, may(t, m.Stores.Etcd.ClientAs(identities[as].EtcdUser()), key), "%s: %s", as, key)
			return failure.New(failure.PolicySecurity, "test", "etcd does not let it")
		},
		tryUnguarded: func(t *testing.T, m *mesh) error {
			t.Helper()
			if !may(t, m.unguardedEtcd.ClientAs(identities[as].EtcdUser()), key) {
				return fmt.Errorf("etcd rejects %s", key)
			}
			return nil
		},
	}
}
