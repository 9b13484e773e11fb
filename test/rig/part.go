package rig

import (
	"cmp"
	"maps"
	"slices"
	"strings"

	"github.com/troupe-dev/troupe/internal/identity"
)

// Part identifies a process of the mesh, such as a service, a worker or a store.
type Part string

// The parts that are not workers.
const (
	Etcd         Part = "etcd"
	Redis        Part = "redis"
	Memory       Part = "memory"
	Orchestrator Part = "orchestrator"
)

// Worker returns the part that is the worker of an agent.
func Worker(agent string) Part { return Part("worker " + agent) }

// SecondWorker returns the part that is a second worker of an agent. It runs only if a test starts it.
func SecondWorker(agent string) Part { return Worker(agent) + secondSuffix }

const secondSuffix = " second"

// fileName returns the name of the part in a form that is valid in a file name.
func (p Part) fileName() string { return strings.ReplaceAll(string(p), " ", "-") }

// Agents lists the agents that every mesh has, which are the agents of the research assistant.
var Agents = []string{"coordinator", "clarification", "research", "synthesis"}

// programs holds the workers that a test has added.
type programs map[Part]Program

// stopOrder returns all services in the order in which they are stopped.
func (added programs) stopOrder() []Part {
	all := []Part{Orchestrator}
	for _, agent := range Agents {
		all = append(all, Worker(agent), SecondWorker(agent))
	}
	all = slices.AppendSeq(all, maps.Keys(added))
	return append(all, Memory)
}

// agentOf returns the agent of a worker.
func (added programs) agentOf(p Part) string {
	_, name, _ := strings.Cut(strings.TrimSuffix(string(p), secondSuffix), " ")
	return cmp.Or(added[p].Agent, name)
}

// identityOf returns the identity of a service or a worker.
func (added programs) identityOf(p Part) identity.ID {
	if p == Memory || p == Orchestrator {
		return identity.ID{Role: identity.Role(p)}
	}
	return identity.ID{Role: identity.Worker, Name: added.agentOf(p)}
}
