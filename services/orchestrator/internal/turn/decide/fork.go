package decide

import (
	"context"
	"encoding/json"
	"slices"
	"strings"

	"github.com/troupe-dev/troupe/internal/retry"
	"github.com/troupe-dev/troupe/pkg/conversation"
	"github.com/troupe-dev/troupe/pkg/execution"
	"github.com/troupe-dev/troupe/pkg/failure"
	"github.com/troupe-dev/troupe/pkg/memory"
	"github.com/troupe-dev/troupe/pkg/session"
	"github.com/troupe-dev/troupe/services/orchestrator/internal/trace"
	"github.com/troupe-dev/troupe/services/orchestrator/internal/turn/lease"
	"github.com/troupe-dev/troupe/services/orchestrator/internal/turn/request"
)

// admitFork returns the admission of a turn that begins a new session. The session is a copy of the earlier
// trace's session, as it was when that turn began. It also has the results of the steps before the named step.
func (d *Decider) admitFork(ctx context.Context, req request.Request, begin memory.Begin) (Admission, error) {
	found, err := d.endedTrace(ctx, req)
	if err != nil {
		return Admission{}, err
	}
	p, err := d.loadEarlierTurn(ctx, req, found)
	if err != nil {
		return Admission{}, err
	}
	decided := d.withTarget(ForkSession, begin, found.Record.GetTarget())
	if decided.Labels, err = forkedLabels(found, p, req.Source.Step); err != nil {
		return Admission{}, err
	}
	inherited, err := p.resultsBefore(req.Source.Step)
	if err != nil {
		return Admission{}, err
	}
	ctx, cancel := context.WithTimeout(ctx, lease.BeginTimeout)
	defer cancel()
	messages, err := d.loadMessagesUpTo(ctx, p.ref, p.turn.Sequence)
	if err != nil {
		return Admission{}, err
	}
	if n := len(messages); n > 0 && messages[n-1].Sequence < p.turn.Sequence {
		return Admission{}, notContinuedError("the messages of its turn are not saved yet; save the session first", req.Source.Trace)
	}
	first, err := firstMessage(messages, p.turn.Number, req)
	if err != nil {
		return Admission{}, err
	}
	said := messages[first]
	if req.Text != "" {
		said.Text = req.Text
	}
	state, untrusted, err := d.loadSessionState(ctx, p.ref)
	if err != nil {
		return Admission{}, err
	}
	copied := &memory.Copy{StepMessages: messagesAfter(messages[first:], inherited), State: state}
	copied.History = windowBefore(messages[:first], memory.MaxWindow-1-len(copied.StepMessages))
	if copied.Rounds, err = loadForkedRounds(ctx, d.Memory, p.ref, newForkedHistory(copied, said, inherited), messages, inherited); err != nil {
		return Admission{}, err
	}
	decided.Begin.Predecessor.Inherited = renumberResults(inherited, copied)
	decided.ForkText, decided.Begin.Predecessor.Copy = said.Text, copied
	decided.Begin.Message = conversation.User(said.Text)
	if req.Text == "" {
		decided.Begin.Message.Untrusted = said.Untrusted
	}
	decided.Begin.Message.Attachments = req.Files
	// The state, and messages that are not copied, may contain text from that source.
	decided.Begin.Message = conversation.MarkUntrusted(untrusted, []conversation.Message{decided.Begin.Message})[0]
	return decided, nil
}

// firstMessage returns the index of the first message of a turn. The messages end with the turn's last message.
func firstMessage(messages []conversation.Message, turn int, req request.Request) (int, error) {
	for i, m := range slices.Backward(messages) {
		if m.Role != conversation.RoleUser || m.Author != "" || m.Turn > turn {
			continue
		}
		if len(m.Attachments) > 0 && len(req.Files) == 0 {
			return 0, failure.New(failure.UserInvalidInput, op,
				"parts: the message of the trace had files, which stay with its session; send them again with the fork").With("fields", "parts")
		}
		return i, nil
	}
	return 0, notContinuedError("the message with which its turn began is no longer in the session", req.Source.Trace)
}

// forkedLabels returns the labels of a fork. A fork begins a new run. It makes the choices about the steps that it
// runs again anew.
func forkedLabels(found trace.RunningTrace, p earlierTurn, step int) (request.Labels, error) {
	labels := request.LabelsFromTrace(found).WithoutChoicesFrom(step)
	labels.Root, labels.Budget = "", nil
	return labels.WithChoices(p.choices)
}

// windowBefore returns the messages that a forked session gets from the time before its first turn. They are as
// many as a turn may see, without their files.
func windowBefore(messages []conversation.Message, limit int) []conversation.Message {
	fits := conversation.CountFitting(func(yield func(conversation.Message) bool) {
		for _, m := range slices.Backward(messages) {
			if !yield(m) {
				return
			}
		}
	}, memory.MaxWindowBytes)
	kept := slices.Clone(conversation.Window(messages[len(messages)-fits:], max(1, limit), 0))
	for i := range kept {
		kept[i] = withoutFiles(kept[i])
	}
	return kept
}

// withoutFiles returns a message without its files. If the message has no text, the names of the files become its
// text.
func withoutFiles(m conversation.Message) conversation.Message {
	if m.Text == "" {
		var names []string
		for _, f := range m.Attachments {
			names = append(names, "[file "+f.Name+"]")
		}
		m.Text = strings.Join(names, " ")
	}
	m.Attachments = nil
	return m
}

// messagesAfter returns the messages of inherited steps, which follow the first message of their turn.
func messagesAfter(messages []conversation.Message, inherited []execution.Result) (said []conversation.Message) {
	last := messages[0].Sequence
	for _, r := range inherited {
		last = max(last, r.Sequence)
	}
	for _, m := range messages[1:] {
		if m.Sequence <= last {
			said = append(said, withoutFiles(m))
		}
	}
	return said
}

// renumberResults returns the results with the sequences that their messages have in the new session.
func renumberResults(results []execution.Result, copied *memory.Copy) []execution.Result {
	all := slices.Clone(results)
	for i, r := range all {
		all[i].Sequence = int64(len(copied.History) + 1)
		for _, m := range copied.StepMessages {
			if m.Sequence <= r.Sequence {
				all[i].Sequence++
			}
		}
	}
	return all
}

// loadMessagesUpTo loads the latest messages of a session up to a sequence, at most as many as a forked session
// may have.
func (d *Decider) loadMessagesUpTo(ctx context.Context, ref session.Ref, last int64) ([]conversation.Message, error) {
	var all []conversation.Message
	for from := max(0, last-memory.MaxWindow); from < last; {
		page, err := retry.Do(ctx, func(ctx context.Context) ([]conversation.Message, error) {
			return d.Memory.LoadHistory(ctx, ref, from, memory.MaxWindow)
		})
		if err != nil {
			return nil, err
		}
		if len(page) == 0 {
			break
		}
		all, from = append(all, page...), page[len(page)-1].Sequence
	}
	return slices.DeleteFunc(all, func(m conversation.Message) bool { return m.Sequence > last }), nil
}

// loadSessionState loads the current state of a session, without the state of its user and tenant, and the
// session's source of untrusted text. Older states are not kept.
func (d *Decider) loadSessionState(ctx context.Context, ref session.Ref) (state map[string]json.RawMessage, untrusted string, _ error) {
	seen, err := retry.Do(ctx, func(ctx context.Context) (memory.Snapshot, error) { return d.Memory.GetState(ctx, ref) })
	if err != nil {
		return nil, "", err
	}
	state = map[string]json.RawMessage{}
	for key, value := range seen.Values {
		if memory.ScopeOf(key) == memory.ScopeSession {
			state[key] = value
		}
	}
	return state, seen.Untrusted, nil
}
