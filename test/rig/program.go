package rig

import (
	"fmt"
	"time"

	"github.com/troupe-dev/troupe/pkg/agent"
	"github.com/troupe-dev/troupe/test/rig/gate"
	"github.com/troupe-dev/troupe/test/rig/inputagent"
	"github.com/troupe-dev/troupe/test/rig/slow"
)

// Program describes a worker that a test adds to a mesh.
type Program struct {
	Instance     string                       // id of the instance
	Agent        string                       // name of the agent (empty means the one in the Part, if any)
	DrainTimeout time.Duration                // time that running steps get when the worker stops
	Package      string                       // main package below ./test/rig, for StartBinaries
	Env          []string                     // environment in addition to the one that all workers have
	NewAgent     func() (*agent.Agent, error) // creates the agent for StartInProcess
}

// HostWorker starts an additional worker as a new part, on which methods such as Start and Stop then work. It does
// not wait until the worker is ready.
func (m *Mesh) HostWorker(p Part, program Program) {
	m.t.Helper()
	m.programs[p] = program
	if m.Credentials.UsesFiles() {
		m.Stores.AddAgent(m.Credentials.DevCA, program.Agent)
	}
	m.Start(p)
}

// SlowWorker returns the slow agent's worker with the given number. The agent calls the gate.
func SlowWorker(g *gate.Gate, number int) (Part, Program) {
	id := fmt.Sprintf("slow-%d", number)
	return Part(id), Program{
		Instance: id, Agent: slow.Name, DrainTimeout: time.Second, Package: "./test/rig/slowworker", Env: []string{"SLOW_GATE=" + g.URL},
		NewAgent: func() (*agent.Agent, error) { return slow.New(g.URL, id) },
	}
}

// InputWorker returns the worker with the given number for an agent of package inputagent. The agent has the given
// name and calls the gate.
func InputWorker(g *gate.Gate, name string, number int) (Part, Program) {
	id := fmt.Sprintf("%s-%d", name, number)
	return Part(id), Program{
		Instance: id, Agent: name, DrainTimeout: time.Second, Package: "./test/rig/inputworker",
		Env:      []string{"CLERK_GATE=" + g.URL, "CLERK_NAME=" + name},
		NewAgent: func() (*agent.Agent, error) { return inputagent.New(name, g.URL, id) },
	}
}
