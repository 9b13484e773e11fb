// Package inspect has the commands that show what is in the mesh: get, describe and search.
package inspect

import (
	"github.com/troupe-dev/troupe/cmd/troupe/internal/inspect/trace"
)

type describe struct {
	Instance describeInstance `cmd:"" help:"An instance, as the registry and as its worker know it."`
	Session  describeSession  `cmd:"" help:"A conversation: its state, what it holds and what it remembers."`
	Trace    trace.Describe   `cmd:"" help:"What a turn did, as a tree with times, tokens and costs."`
	Workflow describeWorkflow `cmd:"" help:"The steps of a workflow, and what leads from each to the next."`
}

type get struct {
	Agents    getAgents    `cmd:"" help:"Agents, with how many of their instances are ready."`
	Instances getInstances `cmd:"" help:"Registered instances."`
	Workflows getWorkflows `cmd:"" help:"Workflows that calls may name as their target."`
	Traces    getTraces    `cmd:"" help:"The latest traces."`
	Decisions getDecisions `cmd:"" help:"The latest decisions about agents, instances and tools."`
	Sessions  getSessions  `cmd:"" help:"The latest conversations."`
	Session   getSession   `cmd:"" help:"A conversation with its messages."`
	Approvals getApprovals `cmd:"" help:"Tool calls that wait for an approval, or for a result."`
	Artifacts getArtifacts `cmd:"" help:"What the turns of a conversation made, and what its user has under user:."`
	Artifact  getArtifact  `cmd:"" help:"The content of an artifact."`
}

// Commands list and describe what is in the mesh.
type Commands struct {
	Get      get      `cmd:"" help:"List agents, instances, sessions, traces and more."`
	Describe describe `cmd:"" help:"Show one instance, session, trace or workflow in full."`
	Search   search   `cmd:"" help:"Search the conversations of a user."`
}
