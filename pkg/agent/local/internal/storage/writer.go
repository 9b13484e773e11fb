package storage

import (
	"cmp"
	"context"

	"github.com/troupe-dev/troupe/pkg/conversation"
	"github.com/troupe-dev/troupe/pkg/execution"
	"github.com/troupe-dev/troupe/pkg/memory"
	"github.com/troupe-dev/troupe/pkg/session"
)

// maxCommitMessages is the maximum number of messages in one commit.
const maxCommitMessages = 64

// Writer stores a turn whose lease this process holds.
type Writer struct {
	Turn         *Turn
	Lease        memory.Lease
	LastSequence int64 // sequence of the last message of the session

	store          memory.Store
	agent          string
	committedSteps int // number of parts already committed
}

// NewWriter returns the Writer of a turn of the named agent that has begun.
func (s *Session) NewWriter(t *Turn, begun memory.BeginResult, agent string) *Writer {
	return &Writer{
		Turn: t, Lease: memory.Lease{Ref: s.Ref, TurnID: t.ID, Epoch: begun.Turn.Epoch}, LastSequence: begun.Turn.Sequence,
		store: s.Store, agent: agent, committedSteps: len(begun.Turn.Steps),
	}
}

// Write stores the turn and closes it. It returns the turn as stored. If the turn was closed before, its outcome
// may differ from t's. If all messages fit into one write, the answer becomes visible with that write. Otherwise
// earlier parts are written first, and none of them is shown as an answer. After an error the turn is still open:
// call Write again, also after Turn.MarkFailed.
func (w *Writer) Write(ctx context.Context) (session.Turn, error) {
	parts := splitMessages(w.Turn.Messages)
	for len(parts) <= w.committedSteps && w.Turn.HasAnswer() { // the last one closes the turn
		parts = append(parts, nil)
	}
	for i, part := range parts {
		step := i + 1
		if step <= w.committedSteps {
			continue
		}
		last, err := w.commit(ctx, step, part, step == len(parts))
		if err != nil && w.Turn.HasAnswer() {
			return session.Turn{}, err
		}
		if err != nil {
			break // a closed turn without some of its messages is better than an open one
		}
		w.LastSequence, w.committedSteps = last, step
	}
	if !w.Turn.HasAnswer() {
		return w.closeFailed(ctx)
	}
	t := w.Turn
	return session.Turn{ID: t.ID, Number: t.Number, Outcome: t.Outcome, Steps: []execution.Result{t.Result}, Sequence: w.LastSequence}, nil
}

// commit stores one part of the messages. The last part includes the answer. It returns the sequence of the last
// message.
func (w *Writer) commit(ctx context.Context, step int, part []conversation.Message, last bool) (int64, error) {
	c := memory.Commit{
		Ref: w.Lease.Ref, TurnID: w.Lease.TurnID, Epoch: w.Lease.Epoch, Base: w.LastSequence, Messages: part,
		Result: execution.Result{Agent: w.agent},
	}
	if last && w.Turn.HasAnswer() {
		c.State, c.Result, c.Outcome = w.Turn.State, w.Turn.Result, w.Turn.Outcome
	}
	c.Result.Step = step
	return CallWithRetry(ctx, func(ctx context.Context) (int64, error) { return w.store.CommitStep(ctx, c) })
}

// closeFailed closes a turn without an answer as failed.
func (w *Writer) closeFailed(ctx context.Context) (session.Turn, error) {
	turn, err := CallWithRetry(ctx, func(ctx context.Context) (session.Turn, error) {
		return w.store.FailTurn(ctx, memory.Fail{
			Ref: w.Lease.Ref, TurnID: w.Lease.TurnID, Epoch: w.Lease.Epoch, Outcome: w.Turn.Outcome, Failure: w.Turn.Failure,
		})
	})
	if err == nil {
		w.LastSequence = turn.Sequence
	}
	return turn, err
}

// splitMessages divides messages into parts that each fit into one commit. It does not split a round that fits
// into one commit.
func splitMessages(messages []conversation.Message) [][]conversation.Message {
	var parts [][]conversation.Message
	for len(messages) > 0 {
		n := countFitting(messages)
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

// countFitting returns how many of the messages fit into one commit, but at least one.
func countFitting(messages []conversation.Message) int {
	bytes := 0
	for i, m := range messages {
		if bytes += conversation.Size(m); i == maxCommitMessages || i > 0 && bytes > memory.MaxWindowBytes {
			return i
		}
	}
	return len(messages)
}
