package scenario

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/troupe-dev/troupe/pkg/agent"
	"github.com/troupe-dev/troupe/pkg/agent/flow"
	"github.com/troupe-dev/troupe/pkg/client"
	troupev1 "github.com/troupe-dev/troupe/pkg/gen/troupe/v1"
	"github.com/troupe-dev/troupe/test/rig"
)

// Two agents ask each other. The second request for the first one is refused with the whole chain, before the limit of the
// depth, and no turn begins for it.
// Req: OC-29
func TestAncestors_InProcess(t *testing.T) {
	m := rig.StartInProcess(t, rig.Config{})
	for name, other := range map[string]string{"ping": "pong", "pong": "ping"} {
		m.HostWorker(rig.Part(name+"-1"), rig.Program{Instance: name + "-1", DrainTimeout: time.Second, NewAgent: func() (*agent.Agent, error) {
			remote, err := client.New(m.Conn).Agent(other, agent.Config{})
			if err != nil {
				return nil, err
			}
			return flow.Sequence(agent.Config{Name: name, Description: "Asks " + other + "."}, remote)
		}})
	}
	m.AwaitReady()
	m.Await("both agents are ready", func() bool {
		return len(idleInstances(t, m, "ping")) == 1 && len(idleInstances(t, m, "pong")) == 1
	})
	req := textRequest("Who is there?")
	req.Target = "ping"
	events := runTurn(t, m, req)
	why := turnResult(events).GetFailure()
	require.Equal(t, troupev1.FailureMode_FAILURE_MODE_POLICY_BUDGET, why.GetMode(), "%v", turnResult(events))
	require.Contains(t, why.GetMessage(), "ping > pong > ping")
	traces, err := m.ListTraces(t.Context(), &troupev1.ListTracesRequest{RootTraceId: events[0].GetTraceId()})
	require.NoError(t, err)
	require.Len(t, traces.GetTraces(), 2, "one turn of each")
}
