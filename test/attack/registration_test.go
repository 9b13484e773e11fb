package attack

import (
	"fmt"
	"slices"
	"testing"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/troupe-dev/troupe/internal/registry/etcdregistry"
	"github.com/troupe-dev/troupe/internal/registry/registrytest"
	"github.com/troupe-dev/troupe/internal/wire/instancewire"
	troupev1 "github.com/troupe-dev/troupe/pkg/gen/troupe/v1"
	"github.com/troupe-dev/troupe/test/rig"
)

// A compromised worker can write anything into its own keys in etcd. Even so, turns of other agents continue,
// operators see the instances, and quarantined agents stay quarantined.
// Req: S9 S18
func TestMesh_SurvivesHostileRegistrations(t *testing.T) {
	m := rig.StartInProcess(t, rig.Config{})
	etcd := m.Stores.Etcd.ClientAs("worker/research")
	granted, err := etcd.Grant(t.Context(), 60)
	require.NoError(t, err)
	put := func(id, value string, opts ...clientv3.OpOption) {
		t.Helper()
		_, err := etcd.Put(t.Context(), etcdregistry.DefaultPrefix+"/research/"+id, value, opts...)
		require.NoError(t, err)
	}
	leased := clientv3.WithLease(granted.ID)
	const paused = `{"address":"127.0.0.1:1","state":"INSTANCE_STATE_PAUSED","capacity":1}`
	put("", paused, leased)                                    // the key of the whole agent's desired state
	put("\xff\xfe\x1b[31m", paused, leased)                    // not valid UTF-8, so no message can contain it
	put("stays", paused)                                       // has no lease, so it would outlive its worker
	put("a/b", paused, leased)                                 //
	for n, capacity := range []int{-1 << 31, -79, 1<<31 - 1} { // admission limits are computed from the capacity
		put(fmt.Sprint("neg", n), fmt.Sprintf(`{"address":"127.0.0.1:1","state":"INSTANCE_STATE_READY","capacity":%d}`, capacity), leased)
	}
	// The watch delivers changes in order. When this key has arrived, the orchestrator has read the others.
	last := registrytest.NewInstance("research", "last")
	value, err := instancewire.MarshalInstance(last)
	require.NoError(t, err)
	put("last", value, leased)
	var instances []*troupev1.Instance
	m.Await("the last registration", func() bool {
		got, err := m.ListInstances(t.Context(), &troupev1.ListInstancesRequest{Agent: "research"})
		require.NoError(t, err)
		instances = got.GetInstances()
		return slices.ContainsFunc(instances, func(in *troupev1.Instance) bool { return in.GetInstanceId() == last.ID })
	})
	require.Len(t, instances, 2, "%v", instances)

	var end *troupev1.Event
	for e, err := range m.Turn(t.Context(), &troupev1.OrchestrateRequest{
		RequestId: uuid.NewString(), Target: "synthesis",
		Input: &troupev1.OrchestrateRequest_Text{Text: "What is a fence?"},
	}) {
		require.NoError(t, err)
		end = e
	}
	require.Equal(t, troupev1.TurnOutcome_TURN_OUTCOME_COMPLETED, end.GetTurnResult().GetOutcome(), "%v", end)
	_, err = m.QuarantineAgent(t.Context(), &troupev1.QuarantineAgentRequest{Agent: "research", Reason: "taken over"})
	require.NoError(t, err)
	_, err = m.ResumeAgent(t.Context(), &troupev1.ResumeAgentRequest{Agent: "research", Reason: "by mistake"})
	require.NoError(t, err)
	agents, err := m.ListAgents(t.Context(), &troupev1.ListAgentsRequest{})
	require.NoError(t, err)
	for _, a := range agents.GetAgents() {
		require.Equal(t, a.GetName() == "research", a.GetQuarantine() != nil, a.GetName())
	}
}
