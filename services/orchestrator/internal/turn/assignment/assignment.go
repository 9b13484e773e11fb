// Package assignment builds what an instance receives for an attempt at a step: the request with history and task,
// a share of the budget, and a credential. It also decides which instances may get the step.
package assignment

import (
	"slices"
	"sync"

	"github.com/troupe-dev/troupe/internal/audit"
	"github.com/troupe-dev/troupe/internal/identity/turncred"
	"github.com/troupe-dev/troupe/pkg/conversation"
	"github.com/troupe-dev/troupe/pkg/execution"
	"github.com/troupe-dev/troupe/pkg/session"
	"github.com/troupe-dev/troupe/services/orchestrator/internal/routing/cursor"
	"github.com/troupe-dev/troupe/services/orchestrator/internal/routing/instances"
	"github.com/troupe-dev/troupe/services/orchestrator/internal/turn/lease"
	"github.com/troupe-dev/troupe/services/orchestrator/internal/turn/publish"
	"github.com/troupe-dev/troupe/services/orchestrator/internal/turn/request"
	"github.com/troupe-dev/troupe/services/orchestrator/internal/workflow"
)

// Services holds the dependencies that the assignments of all turns share.
type Services struct {
	Instances   *instances.Cache
	Workflows   *workflow.Set
	Credentials *turncred.Authority // for calls to the memory service (nil means that the mesh has no identities)
	Audit       *audit.Log
}

// Turn holds the data that all assignments of one turn share.
type Turn struct {
	Services
	Request       request.Request
	Turn          session.Turn
	Flow          *workflow.Workflow
	Lease         *lease.Lease
	Events        *publish.Writer
	KeepsJournals bool // whether the memory service keeps the journals of the steps, for a replay

	credential sync.Once // makes sure that the audit log gets one entry about the credentials of the turn
}

// Conversation is the part of the session and of the turn that the next step sees.
type Conversation struct {
	History      []conversation.Message // the window of the session, followed by the messages of earlier steps
	LastSequence int64                  // sequence of the last message of the session
	Results      []execution.Result     // results of the steps so far, in order
	Agents       []string               // agents that may have tool rounds in the session
}

// AddResult adds the result of a step. number is the number of the turn. Unless the step was hidden, the session
// now contains the messages of the agent.
func (c *Conversation) AddResult(task cursor.Task, r execution.Result, turn int) {
	c.Results = append(c.Results, r)
	if r.Failure != nil {
		return
	}
	c.LastSequence = max(c.LastSequence, r.Sequence) // an inherited step has a lower sequence
	if !slices.Contains(c.Agents, r.Agent) {
		c.Agents = append(slices.Clip(c.Agents), r.Agent)
	}
	if !task.IsHidden() && r.Text != "" {
		said := conversation.Assistant(r.Agent, r.Text)
		said.Untrusted = r.Untrusted
		said.Sequence, said.Turn = r.Sequence, turn
		c.History = append(c.History, said)
	}
}

// Attempt is one attempt at a step.
type Attempt struct {
	Task         cursor.Task
	Conversation Conversation
	Origin       publish.EventOrigin
	Share        Share
}
