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
	registration = "/troupe/v1/reg/" + scribe + "/scribe-1"     // AGENT, and the protocol of SHARED
	wanted       = "/troupe/v1/desired/" + scribe + "/scribe-1" // ORCHESTRATOR
	record       = "/troupe/v1/store/redis"                     // MEMORY
)

// byName are accesses over connections to etcd, with the certificate of each actor.
var byName = map[ownership.Cell][]trial{
	{Actor: ownership.Owner, Tier: ownership.MemoryTier, Verb: ownership.Write}:       {puts(ownership.Owner, record)},
	{Actor: ownership.Owner, Tier: ownership.OrchestratorTier, Verb: ownership.Write}: {puts(ownership.Owner, wanted)},

	{Actor: ownership.Other, Tier: ownership.AgentTier, Verb: ownership.Read}:         {gets(ownership.Other, registration)},
	{Actor: ownership.Other, Tier: ownership.AgentTier, Verb: ownership.Write}:        {puts(ownership.Other, registration)},
	{Actor: ownership.Other, Tier: ownership.MemoryTier, Verb: ownership.Write}:       {puts(ownership.Other, record)},
	{Actor: ownership.Other, Tier: ownership.MemoryTier, Verb: ownership.Beyond}:      {gets(ownership.Other, record)},
	{Actor: ownership.Other, Tier: ownership.OrchestratorTier, Verb: ownership.Write}: {puts(ownership.Other, wanted)},
	{Actor: ownership.Other, Tier: ownership.SharedTier, Verb: ownership.Write}:       {puts(ownership.Other, registration)},

	{Actor: ownership.Memory, Tier: ownership.AgentTier, Verb: ownership.Read}:         {gets(ownership.Memory, registration)},
	{Actor: ownership.Memory, Tier: ownership.AgentTier, Verb: ownership.Write}:        {puts(ownership.Memory, registration)},
	{Actor: ownership.Memory, Tier: ownership.OrchestratorTier, Verb: ownership.Write}: {puts(ownership.Memory, wanted)},

	{Actor: ownership.Orchestrator, Tier: ownership.AgentTier, Verb: ownership.Write}:  {puts(ownership.Orchestrator, registration)},
	{Actor: ownership.Orchestrator, Tier: ownership.MemoryTier, Verb: ownership.Write}: {puts(ownership.Orchestrator, record)},
	{Actor: ownership.Orchestrator, Tier: ownership.SharedTier, Verb: ownership.Write}: {puts(ownership.Orchestrator, registration)},
}

func gets(as ownership.Actor, key string) trial { return in(as, key, etcdtest.MayRead) }
func puts(as ownership.Actor, key string) trial { return in(as, key, etcdtest.MayWrite) }

// in asks etcd whether an actor may access a key. Without users, etcd permits everything.
func in(as ownership.Actor, key string, may func(testing.TB, *clientv3.Client, string) bool) trial {
	return trial{
		try: func(t *testing.T, m *mesh) error {
			t.Helper()
			require.False(t, may(t, m.Stores.Etcd.As(ids[as].User()), key), "%s: %s", as, key)
			return failure.New(failure.PolicySecurity, "test", "etcd does not let it")
		},
		without: func(t *testing.T, m *mesh) error {
			t.Helper()
			if !may(t, m.openEtcd.As(ids[as].User()), key) {
				return fmt.Errorf("etcd refuses %s", key)
			}
			return nil
		},
	}
}
