package ownership_test

import (
	"encoding/json"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc"

	"github.com/troupe-dev/troupe/internal/identity"
	"github.com/troupe-dev/troupe/internal/identity/turncred"
	"github.com/troupe-dev/troupe/internal/memoryrpc"
	"github.com/troupe-dev/troupe/internal/rpc"
	"github.com/troupe-dev/troupe/internal/telemetry"
	"github.com/troupe-dev/troupe/pkg/agent"
	"github.com/troupe-dev/troupe/pkg/conversation"
	troupev1 "github.com/troupe-dev/troupe/pkg/gen/troupe/v1"
	"github.com/troupe-dev/troupe/pkg/memory"
	domain "github.com/troupe-dev/troupe/pkg/session"
	"github.com/troupe-dev/troupe/test/etcdtest"
	"github.com/troupe-dev/troupe/test/ownership"
	"github.com/troupe-dev/troupe/test/redistest"
	"github.com/troupe-dev/troupe/test/rig"
)

// mesh is a mesh that runs the owner agent in the process of the test, so that the test can read its RAM.
type mesh struct {
	*rig.Mesh
	owner      *agent.Agent
	redis      *redis.Client    // with all rights
	etcd       *clientv3.Client // with all rights
	ownerTrace string           // trace of the owner's turn
	turns      map[ownership.Actor]turncred.Turn

	// These stores have no users and permit everything, for tests of the other layers.
	unguardedRedis *redistest.Server
	unguardedEtcd  *etcdtest.Etcd
}

const sessionID = "ownership"

// newMesh returns a mesh with stored state. The owner agent and another agent each have an open turn in their own
// session.
func newMesh(t *testing.T, cfg rig.Config) *mesh {
	t.Helper()
	m := &mesh{Mesh: rig.StartInProcess(t, cfg), turns: map[ownership.Actor]turncred.Turn{}}
	options, err := redis.ParseURL(m.Stores.RedisURL(redistest.Admin))
	require.NoError(t, err)
	m.redis, m.etcd = redis.NewClient(options), m.Stores.Etcd.ClientAs("root")
	t.Cleanup(func() { require.NoError(t, m.redis.Close()) })
	m.HostWorker(rig.Worker(ownerAgent), rig.Program{Instance: "owner-1", NewAgent: func() (_ *agent.Agent, err error) {
		m.owner, err = newAgent(ownerAgent, nil)
		return m.owner, err
	}})
	m.Await("the owner is ready", func() bool { return m.IsReady(rig.Worker(ownerAgent)) })
	for _, deed := range []string{"agent.write", "memory.update", "shared.write"} {
		require.NoError(t, runAction(t, m, deed), deed)
	}
	list, err := m.ListTraces(t.Context(), &troupev1.ListTracesRequest{})
	require.NoError(t, err)
	m.ownerTrace = list.GetTraces()[0].GetTraceId()
	m.beginTurn(t, ownership.Owner, "ann")
	m.beginTurn(t, ownership.Other, "bob")
	return m
}

// beginTurn opens a turn for an agent, as the orchestrator does, without dispatching a step.
func (m *mesh) beginTurn(t *testing.T, who ownership.Actor, user string) {
	t.Helper()
	turn := turncred.Turn{
		Agent: identities[who].Name, Tenant: identity.DefaultTenant, Session: "of-" + user, ID: "turn-of-" + user,
		User: user, Trace: strings.Repeat("a", 32), Step: 1,
	}
	if who == ownership.Other {
		turn.Trace = strings.Repeat("b", 32)
	}
	begun, err := memoryrpc.New(m.dial(ownership.Orchestrator, rig.Memory)).BeginTurn(t.Context(), memory.Begin{
		Ref: domain.Ref{Session: turn.Session}, User: user, TurnID: turn.ID, TraceID: turn.Trace,
		Fingerprint: "f", Message: conversation.User("hello"), LeaseTTL: 10 * time.Minute, Window: 10,
	})
	require.NoError(t, err)
	turn.Epoch = begun.Turn.Epoch
	m.turns[who] = turn
}

// identities maps each actor to the identity in its certificate.
var identities = map[ownership.Actor]identity.ID{
	ownership.Owner: {Role: identity.Worker, Name: ownerAgent}, ownership.Other: {Role: identity.Worker, Name: "research"},
	ownership.Memory: {Role: identity.Memory}, ownership.Orchestrator: {Role: identity.Orchestrator},
}

// dial connects to a part with the certificate of an actor.
func (m *mesh) dial(as ownership.Actor, p rig.Part) *grpc.ClientConn {
	return m.DialAs(identities[as], p)
}

func (m *mesh) memory(as ownership.Actor) troupev1.MemoryServiceClient {
	return troupev1.NewMemoryServiceClient(m.dial(as, rig.Memory))
}

// orchestrator returns an anonymous connection to the orchestrator's client port.
func (m *mesh) orchestrator(t *testing.T) troupev1.OrchestratorServiceClient {
	t.Helper()
	conn, err := rpc.Dial(m.Address(rig.Orchestrator), telemetry.Discard())
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, conn.Close()) })
	return troupev1.NewOrchestratorServiceClient(conn)
}

// ownedState returns all state that an owner has: MEMORY, ORCHESTRATOR and SHARED in Redis, the keys in etcd, and
// the RAM of the owner. It omits heartbeats.
func (m *mesh) ownedState(t *testing.T) map[string]string {
	t.Helper()
	all := map[string]string{}
	keys, err := m.redis.Keys(t.Context(), "*").Result()
	require.NoError(t, err)
	for _, key := range keys {
		if !strings.HasPrefix(key, "m:store") && !strings.HasPrefix(key, "o:{running}") {
			all[key] = m.redis.Dump(t.Context(), key).Val()
		}
	}
	found, err := m.etcd.Get(t.Context(), "/", clientv3.WithPrefix())
	require.NoError(t, err)
	for _, kv := range found.Kvs {
		var value map[string]any
		require.NoError(t, json.Unmarshal(kv.Value, &value), "%s", kv.Key)
		delete(value, "beat")
		text, err := json.Marshal(value)
		require.NoError(t, err)
		all["etcd "+string(kv.Key)] = string(text)
	}
	for _, key := range m.owner.State().Keys() {
		value, _ := m.owner.State().Get(key)
		all["ram "+key], _ = value.(string)
	}
	return all
}

// withoutTurnRecords returns the state without the keys that every turn writes.
func withoutTurnRecords(state map[string]string) map[string]string {
	kept := maps.Clone(state)
	maps.DeleteFunc(kept, func(key, _ string) bool {
		return strings.HasPrefix(key, "o:") || strings.HasPrefix(key, "m:idx") ||
			strings.HasPrefix(key, "m:{default/"+sessionID+"}") && !strings.HasSuffix(key, ":state")
	})
	return kept
}

// findKey returns the first key in Redis, sorted by name, that matches the pattern.
func (m *mesh) findKey(t *testing.T, pattern string) string {
	t.Helper()
	keys, err := m.redis.Keys(t.Context(), pattern).Result()
	require.NoError(t, err)
	require.NotEmpty(t, keys, pattern)
	return slices.Min(keys)
}
