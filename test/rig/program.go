package rig

import (
	"fmt"
	"time"

	"github.com/troupe-dev/troupe/pkg/agent"
	"github.com/troupe-dev/troupe/test/rig/gate"
	"github.com/troupe-dev/troupe/test/rig/inputagent"
	"github.com/troupe-dev/troupe/test/rig/slow"
)

// Program is a worker that a test adds to the workers of the research assistant.
type Program struct {
	Instance string                       // its id
	Agent    string                       // its agent (empty means the one that the Part names, if any)
	Drain    time.Duration                // how long its steps may take to end when it stops
	Package  string                       // of its main, below ./test/rig; for Binaries
	Env      []string                     // of its process, besides the environment of all workers
	Make     func() (*agent.Agent, error) // for InProcess
}

// Host starts a worker of the test as a part of its own, which Start, Stop and the others then know. It
// does not wait until the worker is ready.
func (m *Mesh) Host(p Part, program Program) {
	m.t.Helper()
	m.programs[p] = program
	if m.Credentials.InFiles() {
		m.Stores.AddAgent(m.Credentials.DevCA, program.Agent)
	}
	m.Start(p)
}

// SlowWorker returns the worker with this number of the slow agent, which calls the gate.
func SlowWorker(g *gate.Gate, number int) (Part, Program) {
	id := fmt.Sprintf("slow-%d", number)
	return Part(id), Program{
		Instance: id, Agent: slow.Name, Drain: time.Second, Package: "./test/rig/slowworker", Env: []string{"SLOW_GATE=" + g.URL},
		Make: func() (*agent.Agent, error) { return slow.New(g.URL, id) },
	}
}

// InputWorker returns the worker with this number of an agent of package inputagent with the name, which calls the gate.
func InputWorker(g *gate.Gate, name string, number int) (Part, Program) {
	id := fmt.Sprintf("%s-%d", name, number)
	return Part(id), Program{
		Instance: id, Agent: name, Drain: time.Second, Package: "./test/rig/inputworker",
		Env:  []string{"CLERK_GATE=" + g.URL, "CLERK_NAME=" + name},
		Make: func() (*agent.Agent, error) { return inputagent.New(name, g.URL, id) },
	}
}
