package rig

import (
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"

	"github.com/troupe-dev/troupe/internal/identity"
	"github.com/troupe-dev/troupe/internal/rpc"
	"github.com/troupe-dev/troupe/internal/telemetry"
	"github.com/troupe-dev/troupe/pkg/client"
	troupev1 "github.com/troupe-dev/troupe/pkg/gen/troupe/v1"
)

// Dialer returns a function that makes connections and clients in the same way as the mesh's own client. See
// credentials.Dialer.
func (m *Mesh) Dialer() func() (*grpc.ClientConn, *client.Client, error) {
	return m.Credentials.Dialer(m.Address(Orchestrator))
}

// DialAs connects to the memory service or to a worker with the certificate of any process. Tests use it to act as
// that process, for example as a compromised one.
func (m *Mesh) DialAs(as identity.ID, p Part) *grpc.ClientConn {
	m.t.Helper()
	server := m.programs.identityOf(p)
	conn, err := rpc.DialWith(m.Credentials.Identity(as).ClientCredentials(server.Role, server.Name), m.Address(p), telemetry.Discard())
	require.NoError(m.t, err)
	m.t.Cleanup(func() { require.NoError(m.t, conn.Close()) })
	return conn
}

// InstanceOf returns the instance id of a worker, which must be registered.
func (m *Mesh) InstanceOf(p Part) string {
	m.t.Helper()
	resp, err := m.ListInstances(m.t.Context(), &troupev1.ListInstancesRequest{})
	require.NoError(m.t, err)
	for _, in := range resp.GetInstances() {
		if in.GetAddress() == m.Address(p) {
			return in.GetInstanceId()
		}
	}
	require.FailNow(m.t, "an instance is not registered", "%s", p)
	return ""
}
