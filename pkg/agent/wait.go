package agent

import (
	"context"

	"github.com/troupe-dev/troupe/internal/loop"
	"github.com/troupe-dev/troupe/pkg/conversation"
	"github.com/troupe-dev/troupe/pkg/event"
	"github.com/troupe-dev/troupe/pkg/execution"
)

// wait makes a result of calls that wait, also in a step that decides where to go. It is no
// answer, so the handlers behind it do not run; observations, messages and changes of state come
// again in the turn that goes on.
func (t *turn) wait(ctx context.Context) error {
	if n := len(t.pending); n > execution.MaxPending { // of agents beside each other
		return loop.TooMany(n)
	}
	if j := t.inv.Step.Journal; j != nil { // agents beside the one that waits went on
		if err := j.Sync(ctx); err != nil {
			return err
		}
	}
	t.reason = event.InputRequired
	t.text = loop.Waiting(t.pending)
	t.result.InputRequired, t.result.Pending, t.result.Text = true, t.pending, t.text
	t.result.ToolsCalled = t.tally.tools
	m := conversation.Assistant(t.agent.Name(), t.text)
	t.control.Conversation.MarkMessagesRead()
	m.Untrusted = t.control.Turn().Untrusted()
	t.messages = []conversation.Message{m}
	return nil
}
