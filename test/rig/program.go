package rig

import (
	"fmt"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/troupe-dev/troupe/internal/registry/etcdregistry/etcdauth"
	"github.com/troupe-dev/troupe/pkg/agent"
	"github.com/troupe-dev/troupe/test/rig/clerk"
	"github.com/troupe-dev/troupe/test/rig/slow"
)

// Program is a worker that a test brings along, beside those of the research assistant.
type Program struct {
	Instance string                       // its id
	Agent    string                       // whose worker it is; for a mesh with Keys
	Drain    time.Duration                // how long its steps may take to end when it stops
	Package  string                       // of its main, below ./test/rig; for Binaries
	Env      []string                     // of its process, beside where the mesh is
	Make     func() (*agent.Agent, error) // for InProcess
}

// Host starts a worker of a test under a name of its own. Start, Stop and the others know
// it by that name from then on. It does not wait until the worker is ready.
func (m *Mesh) Host(p Part, program Program) {
	m.t.Helper()
	m.programs[p] = program
	if m.keys != nil {
		require.NoError(m.t, etcdauth.LetIn(m.t.Context(), m.devCA, m.etcd.Endpoints(), program.Agent))
	}
	m.Start(p)
}

// Slow is a worker of the slow agent that asks the gate, by number; and its instance.
func Slow(gate *Gate, number int) (Part, Program) {
	id := fmt.Sprintf("slow-%d", number)
	return Part(id), Program{
		Instance: id, Agent: slow.Name, Drain: time.Second, Package: "./test/rig/slowworker", Env: []string{"SLOW_GATE=" + gate.URL},
		Make: func() (*agent.Agent, error) { return slow.New(gate.URL, id) },
	}
}

// Clerk is a worker of a clerk of that name, by number; and its instance.
func Clerk(gate *Gate, name string, number int) (Part, Program) {
	id := fmt.Sprintf("%s-%d", name, number)
	return Part(id), Program{
		Instance: id, Agent: name, Drain: time.Second, Package: "./test/rig/clerkworker", Env: []string{"CLERK_GATE=" + gate.URL, "CLERK_NAME=" + name},
		Make: func() (*agent.Agent, error) { return clerk.New(name, gate.URL, id) },
	}
}
