package loop

import (
	"context"
	"encoding/json"

	"github.com/troupe-dev/troupe/internal/loop/nested"
	"github.com/troupe-dev/troupe/pkg/conversation"
	"github.com/troupe-dev/troupe/pkg/event"
	"github.com/troupe-dev/troupe/pkg/execution"
	"github.com/troupe-dev/troupe/pkg/failure"
)

// maxStop is how many bytes of the reason of a stop are kept for the agent above.
const maxStop = 8 << 10

// stopAll stops the turn, and the one above of which it is a call.
func (r *run) stopAll(ctx context.Context, why string) {
	r.turn.Stop(why)
	nested.StopParent(ctx, cut(why, maxStop))
}

// trail is what a tool did beside giving a result. The journal keeps it with the result: it
// is not done again by a successor, which has to know it all the same.
type trail struct {
	Set      map[string]json.RawMessage `json:"set,omitempty"`     // keys of state
	Removed  []string                   `json:"removed,omitempty"` // too
	Escalate bool                       `json:"escalate,omitempty"`
	Last     int                        `json:"last,omitempty"`    // of Nest
	Stopped  string                     `json:"stopped,omitempty"` // too

	Untrusted string `json:"untrusted,omitempty"` // whose words the tool says its result holds
}

// keep puts into the entry of a call what its tool did beside giving a result, with these
// changes of state. It stands in the place of a reply, as one that nobody said.
func (r *run) keep(w *work, set map[string]json.RawMessage, removed []string) error {
	left := trail{Set: set, Removed: removed, Escalate: r.Progress.Escalated(), Untrusted: w.left.Untrusted}
	if w.nest != nil {
		left.Last, left.Stopped, w.entry.Usage = w.nest.Last, w.nest.Stopped, w.nest.Usage
	}
	text, err := json.Marshal(left)
	if err != nil || string(text) == "{}" {
		return err
	}
	if len(text) > conversation.MaxMessageBytes {
		return failure.Newf(failure.ResourceQuota, "loop.Run",
			"tool %s changed %d bytes of state in one call, and the journal takes %d; store more as an artifact", w.asked.Name, len(text), conversation.MaxMessageBytes)
	}
	w.entry.Reply, w.entry.Aside = conversation.Message{Role: conversation.RoleTool, Text: string(text)}, true
	return nil
}

// remember finds what a tool did in an attempt before this one beside giving a result.
func (w *work) remember(e execution.Entry) {
	if e.Reply.Text != "" && json.Unmarshal([]byte(e.Reply.Text), &w.left) != nil {
		return // of somebody else
	}
	if w.nest != nil {
		w.nest.Last, w.nest.Stopped, w.nest.Usage = w.left.Last, w.left.Stopped, e.Usage
	}
}

// take takes over what a tool did beside giving a result, in this attempt or in one before.
// Of tools that ran beside each other it is done in the order of their calls.
func (r *run) take(ctx context.Context, w *work) {
	if !failed(w.call.Status) && w.call.Status != event.ToolInterrupted {
		r.Absorb(w.memory)
	}
	r.Reapply(w.left.Set, w.left.Removed)
	if w.left.Escalate {
		r.turn.Escalate()
	}
	if w.nest != nil && w.nest.Stopped != "" {
		r.stopAll(ctx, w.nest.Stopped)
	}
}
