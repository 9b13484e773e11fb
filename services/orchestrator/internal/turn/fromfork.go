package turn

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
)

// fork begins a session as the one of an earlier trace was when its turn began, with the steps
// below the one that is named.
func (r *Runner) fork(ctx context.Context, req Request, a admission, p past) (admission, error) {
	inherited, err := p.below(req.From.Step)
	if err != nil {
		return admission{}, err
	}
	ctx, cancel := context.WithTimeout(ctx, beginTime)
	defer cancel()
	messages, err := r.recorded(ctx, p.ref, p.turn.Sequence)
	if err != nil {
		return admission{}, err
	}
	own := -1
	for i, m := range messages {
		if m.Role == conversation.RoleUser && m.Author == "" && m.Turn <= p.turn.Number {
			own = i
		}
	}
	if own < 0 {
		return admission{}, notFrom("the message with which its turn began is no longer in the session", req.From.Trace)
	}
	said := messages[own]
	if len(said.Attachments) > 0 && len(req.Files) == 0 {
		return admission{}, failure.New(failure.UserInvalidInput, opFrom,
			"parts: the message of the trace had files, which stay with its session; send them again with the fork").With("fields", "parts")
	}
	if req.Text != "" {
		said.Text = req.Text
	}
	state, untrusted, err := r.stateOf(ctx, p.ref)
	if err != nil {
		return admission{}, err
	}
	copied := &memory.Copy{Said: behind(messages[own:], inherited), State: state}
	copied.History = window(messages[:own], memory.MaxWindow-1-len(copied.Said))
	a.begin.Inherited = renumbered(inherited, copied)
	a.text, a.begin.Copy = said.Text, copied
	a.begin.Message = conversation.User(said.Text)
	if req.Text == "" {
		a.begin.Message.Untrusted = said.Untrusted
	}
	a.begin.Message.Attachments = req.Files
	// The words of that source may be in the state, and in messages that are left behind.
	a.begin.Message = conversation.Behind(untrusted, []conversation.Message{a.begin.Message})[0]
	return a, nil
}

// below are the results of the steps below one, each of which must be known.
func (p past) below(step int) ([]execution.Result, error) {
	through := p.through()
	last := 0
	for _, r := range through {
		last = max(last, r.Step)
	}
	for n := range p.told.Finished {
		last = max(last, n)
	}
	for n := range p.told.Open {
		last = max(last, n)
	}
	if step > last {
		return nil, failure.Newf(failure.UserInvalidInput, opFrom, "from.step: the trace has no step %d; its last one is %d", step, last).With("fields", "from.step")
	}
	through = slices.DeleteFunc(through, func(r execution.Result) bool { return r.Step >= step })
	if len(through) < step-1 {
		return nil, failure.Newf(failure.UserInvalidInput, opFrom,
			"from.step: not all steps below %d came to an end; name the first that failed, or one before it", step).With("fields", "from.step")
	}
	return through, nil
}

// recorded are the messages of a session up to a sequence, as many as one that is forked may have.
func (r *Runner) recorded(ctx context.Context, ref session.Ref, last int64) ([]conversation.Message, error) {
	var all []conversation.Message
	for from := max(0, last-memory.MaxWindow); from < last; {
		page, err := retry.Do(ctx, func(ctx context.Context) ([]conversation.Message, error) {
			return r.Memory.LoadHistory(ctx, ref, from, memory.MaxWindow)
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

// window is what a session that is forked gets of the messages before its first turn: as much as
// a turn may see. Files stay behind, for they are their session's.
func window(messages []conversation.Message, limit int) []conversation.Message {
	fits := conversation.Fit(func(yield func(conversation.Message) bool) {
		for _, m := range slices.Backward(messages) {
			if !yield(m) {
				return
			}
		}
	}, memory.MaxWindowBytes)
	kept := slices.Clone(conversation.Window(messages[len(messages)-fits:], max(1, limit), 0))
	for i := range kept {
		kept[i] = bare(kept[i])
	}
	return kept
}

// bare is a message without its files, which it names if it has nothing else to say.
func bare(m conversation.Message) conversation.Message {
	if m.Text == "" {
		var names []string
		for _, a := range m.Attachments {
			names = append(names, "[file "+a.Name+"]")
		}
		m.Text = strings.Join(names, " ")
	}
	m.Attachments = nil
	return m
}

// behind is what inherited steps had said behind the message of their turn, which is the first of
// the messages.
func behind(messages []conversation.Message, inherited []execution.Result) (said []conversation.Message) {
	upto := messages[0].Sequence
	for _, r := range inherited {
		upto = max(upto, r.Sequence)
	}
	for _, m := range messages[1:] {
		if m.Sequence <= upto {
			said = append(said, bare(m))
		}
	}
	return said
}

// renumbered are results of steps by the numbers that messages get in a new session.
func renumbered(results []execution.Result, copied *memory.Copy) []execution.Result {
	all := slices.Clone(results)
	for i, r := range all {
		all[i].Sequence = int64(len(copied.History) + 1)
		for _, m := range copied.Said {
			if m.Sequence <= r.Sequence {
				all[i].Sequence++
			}
		}
	}
	return all
}

// stateOf is what the session itself remembers now, with the source of untrusted words in it: there is
// no older state.
func (r *Runner) stateOf(ctx context.Context, ref session.Ref) (own map[string]json.RawMessage, untrusted string, _ error) {
	seen, err := retry.Do(ctx, func(ctx context.Context) (memory.Snapshot, error) { return r.Memory.GetState(ctx, ref) })
	if err != nil {
		return nil, "", err
	}
	own = map[string]json.RawMessage{}
	for key, value := range seen.Values {
		if memory.ScopeOf(key) == memory.ScopeSession {
			own[key] = value
		}
	}
	return own, seen.Untrusted, nil
}
