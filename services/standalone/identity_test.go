package standalone_test

import (
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/zap"
	"google.golang.org/grpc"

	"github.com/troupe-dev/troupe/pkg/failure"
	troupev1 "github.com/troupe-dev/troupe/pkg/gen/troupe/v1"
	"github.com/troupe-dev/troupe/pkg/identity"
	"github.com/troupe-dev/troupe/pkg/rpc"
	"github.com/troupe-dev/troupe/pkg/telemetry"
)

// The parts of a mesh take calls of those alone who are meant to call them, and nothing in plain
// text (guarantees 4.2). Clients need no identity.
func TestRun_PartsServeThoseAloneWhoAreMeantToCall(t *testing.T) {
	m := run(t, config(t))
	listed, err := m.ListInstances(t.Context(), &troupev1.ListInstancesRequest{Agent: "research"})
	require.NoError(t, err)
	require.Len(t, listed.GetInstances(), 1)
	worker := listed.GetInstances()[0].GetAddress()

	getSession := func(conn *grpc.ClientConn) error {
		_, err := troupev1.NewMemoryServiceClient(conn).GetSession(t.Context(), &troupev1.MemoryServiceGetSessionRequest{SessionId: "s1"})
		return err
	}
	getState := func(conn *grpc.ClientConn) error {
		_, err := troupev1.NewLifecycleServiceClient(conn).GetState(t.Context(), &troupev1.GetStateRequest{})
		return err
	}
	step := func(conn *grpc.ClientConn) error {
		stream, err := troupev1.NewAgentServiceClient(conn).ExecuteStep(t.Context(), &troupev1.ExecuteStepRequest{})
		if err != nil {
			return err
		}
		_, err = stream.Recv()
		return err
	}
	for _, c := range []struct {
		who     identity.Role // empty: in plain text
		agent   string
		address string
		call    func(*grpc.ClientConn) error
		want    failure.Mode
	}{
		{identity.Orchestrator, "", m.Memory, getSession, failure.NotFound}, // it was answered
		{identity.Worker, "research", m.Memory, getSession, failure.NotFound},
		{identity.Memory, "", m.Memory, getSession, failure.PolicySecurity},
		{"", "", m.Memory, getSession, failure.SystemNetwork},
		{identity.Orchestrator, "", worker, getState, ""},
		{identity.Worker, "research", worker, getState, failure.PolicySecurity},
		{identity.Worker, "synthesis", worker, step, failure.PolicySecurity},
		{identity.Memory, "", worker, step, failure.PolicySecurity},
		{"", "", worker, step, failure.SystemNetwork},
	} {
		var self *identity.Source
		if c.who != "" {
			self, err = identity.Open(identity.Config{DevCA: m.DevCA}, c.who, c.agent, zap.NewNop())
			require.NoError(t, err)
		}
		at, agent := identity.Memory, ""
		if c.address == worker {
			at, agent = identity.Worker, "research"
		}
		conn, err := rpc.DialWith(self.Client(at, agent), c.address, telemetry.Discard())
		require.NoError(t, err)
		err = failure.FromStatus("test", c.call(conn))
		require.NoError(t, conn.Close())
		if c.want == "" {
			require.NoError(t, err)
			continue
		}
		require.Equal(t, c.want, failure.ModeOf(err), "%s at %s: %v", c.who, c.address, err)
		if c.want == failure.PolicySecurity {
			require.ErrorContains(t, err, "spiffe://dev.troupe/"+string(c.who))
		}
	}
}
