package loop

import (
	"cmp"
	"context"
	"encoding/json"
	"sync"

	"github.com/troupe-dev/troupe/pkg/conversation"
	"github.com/troupe-dev/troupe/pkg/event"
	"github.com/troupe-dev/troupe/pkg/execution"
	"github.com/troupe-dev/troupe/pkg/failure"
	"github.com/troupe-dev/troupe/pkg/tool"
)

// Nested is implemented by a tool that asks models and calls tools in the journal of the step
// itself: an agent that is a tool. What of it was done is known call by call, so it goes on
// where its worker was lost, whatever its effect.
type Nested interface {
	tool.Tool
	// CallIn is Call of such a tool. It fills in what n is to hold afterwards, also when it
	// fails.
	CallIn(ctx context.Context, args json.RawMessage, n *Nest) (tool.Result, error)
	// Skip takes over what n holds of a call that an attempt before this one finished.
	Skip(ctx context.Context, n *Nest)
}

// Nest is the place of a nested call among the numbers of the step, and what it led to.
type Nest struct {
	Lane, Lanes int             // from 0, of those that run beside each other
	Last        int             // up to where its calls are numbered, by the count of who calls it
	Usage       execution.Usage // of its models

	// Pending are calls of it that wait, and it with them: it has no result then, and is called
	// again when the turn goes on.
	Pending []execution.Pending

	// Stopped is why a person stopped a call of it, and with it the whole turn; empty: nobody
	// did. The loop fills it in. A handler that stops the turn of the agent below stops only
	// that one: its last words are a result for the agent above.
	Stopped string

	stopping sync.Mutex // agents below may run beside each other
}

// maxStop is how many bytes of the reason of a stop are kept for the agent above.
const maxStop = 8 << 10

// nestKey finds the *Nest of the call that a run is part of. It is nil below every other tool:
// what runs there is none of this turn.
type nestKey struct{}

// stopAll stops the turn, and the one above of which it is a call.
func (r *run) stopAll(ctx context.Context, why string) {
	r.turn.Stop(why)
	if n, _ := ctx.Value(nestKey{}).(*Nest); n != nil {
		n.stopping.Lock()
		defer n.stopping.Unlock()
		n.Stopped = cmp.Or(n.Stopped, cut(why, maxStop))
	}
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
