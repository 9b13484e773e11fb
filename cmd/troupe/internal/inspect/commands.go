// Package inspect contains the commands get, describe and search, which show the contents of the mesh.
package inspect

import (
	"github.com/troupe-dev/troupe/cmd/troupe/internal/inspect/trace"
)

type describeCommands struct {
	Instance describeInstanceCommand `cmd:"" help:"An instance, as the registry and its worker see it."`
	Session  describeSessionCommand  `cmd:"" help:"A session: its state, size, pending calls and artifacts."`
	Trace    trace.Describe          `cmd:"" help:"What a turn did, as a tree with times, tokens and costs."`
	Workflow describeWorkflowCommand `cmd:"" help:"The steps of a workflow, and the edges between them."`
}

type getCommands struct {
	Agents    getAgentsCommand    `cmd:"" help:"Agents, and how many of their instances are ready."`
	Instances getInstancesCommand `cmd:"" help:"Registered instances."`
	Workflows getWorkflowsCommand `cmd:"" help:"Workflows, which callers can name as their target."`
	Traces    getTracesCommand    `cmd:"" help:"The latest traces."`
	Decisions getDecisionsCommand `cmd:"" help:"The latest decisions about agents, instances and tools."`
	Sessions  getSessionsCommand  `cmd:"" help:"The latest sessions."`
	Session   getSessionCommand   `cmd:"" help:"A session with its messages."`
	Approvals getApprovalsCommand `cmd:"" help:"Tool calls that wait for an approval, a result or a credential."`
	Artifacts getArtifactsCommand `cmd:"" help:"Artifacts of a session, and the user: artifacts of its user."`
	Artifact  getArtifactCommand  `cmd:"" help:"The content of an artifact."`
}

// Commands are the commands that list, describe and search the contents of the mesh.
type Commands struct {
	Get      getCommands      `cmd:"" help:"List agents, instances, sessions, traces and more."`
	Describe describeCommands `cmd:"" help:"Show one instance, session, trace or workflow in full."`
	Search   searchCommand    `cmd:"" help:"Search the conversations of a user."`
}
