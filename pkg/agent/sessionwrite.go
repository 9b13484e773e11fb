package agent

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/hex"
	"encoding/json"

	"github.com/troupe-dev/troupe/pkg/conversation"
	"github.com/troupe-dev/troupe/pkg/execution"
	"github.com/troupe-dev/troupe/pkg/failure"
	"github.com/troupe-dev/troupe/pkg/memory"
	"github.com/troupe-dev/troupe/pkg/session"
)

// maxPart is how many messages one commit takes.
const maxPart = 64

// episode is a turn of a session as it is stored.
type episode struct {
	id, trace string
	number    int
	said      conversation.Message   // by the user; zero: nothing
	continues string                 // id of the turn whose calls wait; empty: none
	answers   []execution.Answer     // to these calls
	messages  []conversation.Message // of the agent, in whole rounds
	state     map[string]json.RawMessage
	result    execution.Result
	outcome   session.Outcome
	failure   *failure.Error // of a turn without an answer
	files     []file         // artifacts that are not stored yet
}

// all are the messages of the turn.
func (ep *episode) all() []conversation.Message {
	if ep.said.Role == "" {
		return ep.messages
	}
	return append([]conversation.Message{ep.said}, ep.messages...)
}

// fails makes a turn without an answer of it. What was said stays (LP-17).
func (ep *episode) fails(outcome session.Outcome, why *failure.Error) {
	ep.outcome, ep.failure, ep.state = outcome, why, nil
	for i := range ep.messages {
		ep.messages[i].Partial = true
	}
}

// answered reports whether the turn has an answer.
func (ep *episode) answered() bool { return answered(ep.outcome) }

func answered(o session.Outcome) bool {
	return o != session.OutcomeFailed && o != session.OutcomeCancelled
}

// asking is the Begin of a turn that goes on with what is stored. The fingerprint follows
// from the id, which stands for one turn ever: so whoever finds a turn left open can take it
// over.
func (s *Session) asking(id, trace string) memory.Begin {
	return memory.Begin{
		Ref: s.ref, User: s.cfg.User, TurnID: id, TraceID: trace, Fingerprint: id,
		LeaseTTL: s.cfg.Lease, Window: s.cfg.Window,
	}
}

// beginning is the Begin of an episode.
func (s *Session) beginning(ep *episode) memory.Begin {
	b := s.asking(ep.id, ep.trace)
	b.Message, b.Continues, b.Answers = ep.said, ep.continues, ep.answers
	return b
}

// scribe writes a turn that this process holds.
type scribe struct {
	store memory.Store
	hold  memory.Lease
	agent string
	base  int64 // the last message of the session
	steps int   // that are committed
	*episode
}

// scribe returns what writes an episode that was begun.
func (s *Session) scribe(ep *episode, begun memory.Begun) *scribe {
	return &scribe{
		store: s.cfg.Store, hold: memory.Lease{Ref: s.ref, TurnID: ep.id, Epoch: begun.Turn.Epoch}, agent: s.agent.Name(),
		base: begun.Turn.Sequence, steps: len(begun.Turn.Steps), episode: ep,
	}
}

// write stores the episode and closes the turn. It returns the turn, whose outcome is another
// one when it was closed before. An answer becomes visible in one write, unless it is more
// than one write takes: then in several, without its parts being shown as an answer. When it
// cannot be stored the turn is still open; write again, also as one that failed.
func (w *scribe) write(ctx context.Context) (session.Turn, error) {
	parts := parted(w.messages)
	for len(parts) <= w.steps && w.answered() { // the last one closes the turn
		parts = append(parts, nil)
	}
	for i, part := range parts {
		step := i + 1
		if step <= w.steps {
			continue
		}
		c := memory.Commit{
			Ref: w.hold.Ref, TurnID: w.hold.TurnID, Epoch: w.hold.Epoch, Base: w.base, Messages: part,
			Result: execution.Result{Agent: w.agent},
		}
		if step == len(parts) && w.answered() {
			c.State, c.Result, c.Outcome = w.state, w.result, w.outcome
		}
		c.Result.Step = step
		last, err := stored(ctx, func(ctx context.Context) (int64, error) { return w.store.CommitStep(ctx, c) })
		if err != nil && w.answered() {
			return session.Turn{}, err
		}
		if err != nil {
			break // better a turn that is closed without all of its messages than one that is not
		}
		w.base, w.steps = last, step
	}
	if w.answered() {
		return session.Turn{ID: w.id, Number: w.number, Outcome: w.outcome, Steps: []execution.Result{w.result}, Sequence: w.base}, nil
	}
	turn, err := stored(ctx, func(ctx context.Context) (session.Turn, error) {
		return w.store.FailTurn(ctx, memory.Fail{
			Ref: w.hold.Ref, TurnID: w.hold.TurnID, Epoch: w.hold.Epoch, Outcome: w.outcome, Failure: w.failure,
		})
	})
	if err == nil {
		w.base = turn.Sequence
	}
	return turn, err
}

// parted are messages as they fit into commits. A round stays together as long as it fits
// into one.
func parted(messages []conversation.Message) [][]conversation.Message {
	var parts [][]conversation.Message
	for len(messages) > 0 {
		n := fitting(messages)
		if n < len(messages) {
			whole := n
			for whole > 0 && messages[whole].Role == conversation.RoleTool {
				whole--
			}
			n = cmp.Or(whole, n)
		}
		parts, messages = append(parts, messages[:n:n]), messages[n:]
	}
	return parts
}

// fitting is how many of the messages one commit takes, at least one.
func fitting(messages []conversation.Message) int {
	bytes := 0
	for i, m := range messages {
		if bytes += conversation.Size(m); i == maxPart || i > 0 && bytes > memory.MaxWindowBytes {
			return i
		}
	}
	return len(messages)
}

// unanswered is what a model reads of a tool whose call was not answered.
const unanswered = "Interrupted: the turn ended before the tool had a result."

// mended are messages in which every call has its result, as a model takes them: those that
// are missing are put in, and results without a call are left out. A turn that failed may
// end inside a round, and a turn whose process was lost while it was stored, too.
func mended(messages []conversation.Message) []conversation.Message {
	var all []conversation.Message
	for i := 0; i < len(messages); i++ {
		m := messages[i]
		if m.Role == conversation.RoleTool {
			continue
		}
		all = append(all, m)
		for _, call := range m.ToolCalls {
			if i+1 < len(messages) && messages[i+1].Role == conversation.RoleTool && messages[i+1].ToolCallID == call.ID {
				i++
				all = append(all, messages[i])
				continue
			}
			all = append(all, conversation.Message{Role: conversation.RoleTool, Text: unanswered, ToolCallID: call.ID})
		}
	}
	return all
}

func newTrace() string {
	var id [16]byte
	_, _ = rand.Read(id[:]) // never fails
	return hex.EncodeToString(id[:])
}
