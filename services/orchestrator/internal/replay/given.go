package replay

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"

	"google.golang.org/protobuf/proto"

	"github.com/troupe-dev/troupe/internal/retry"
	"github.com/troupe-dev/troupe/internal/wire"
	"github.com/troupe-dev/troupe/pkg/conversation"
	"github.com/troupe-dev/troupe/pkg/execution"
	"github.com/troupe-dev/troupe/pkg/failure"
	troupev1 "github.com/troupe-dev/troupe/pkg/gen/troupe/v1"
	"github.com/troupe-dev/troupe/pkg/memory"
)

// given is what a step was given.
type given struct {
	step  *troupev1.ExecuteStepRequest
	began []conversation.Message // of its history what the session held when the turn began
}

// given rebuilds what a step was given: its recording names messages of the session and results of
// the turn. why says for a person why that cannot be done.
func (r *Replayer) given(ctx context.Context, was *past, number int) (_ given, why string, _ error) {
	entries, err := retry.Do(ctx, func(ctx context.Context) ([]execution.Entry, error) {
		return r.Memory.Recording(ctx, was.ref, was.record.GetTurnId(), number, 0)
	})
	switch {
	case failure.Is(err, failure.SessionDeleted):
		return given{}, "its session was deleted, and what was recorded with it", nil
	case failure.Is(err, failure.NotFound):
		return given{}, "its session or its turn is not kept any more", nil
	case err != nil:
		return given{}, "", err
	case len(entries) == 0 || entries[0].Number != 0:
		return given{}, unrecorded(was.results[number]), nil
	}
	step := &troupev1.ExecuteStepRequest{}
	if err := proto.Unmarshal(entries[0].Given, step); err != nil {
		return given{}, "", failure.New(failure.AgentContract, op, "the recording cannot be read; another version wrote it").Because(err)
	}
	step.Epoch, step.Attempt = 1, 1
	for i, prior := range step.GetPrior() {
		result := was.results[int(prior.GetStep())]
		if prior.GetFailure() == nil && result == nil {
			return given{}, fmt.Sprintf("the trace does not have the result of step %d before it", prior.GetStep()), nil
		}
		if prior.GetFailure() == nil {
			step.Prior[i] = result
		}
	}
	return r.told(ctx, was, step)
}

// unrecorded is why a step has no recording.
func unrecorded(result *troupev1.StepResult) string {
	switch {
	case len(result.GetPending()) > 0:
		return "its calls waited, and what it did went on with the turn that answered them: replay the trace of that"
	case result.GetFailure() != nil:
		return "it failed before anything of it was recorded, or that went on with the turn that resumed this one, or is not kept any more (--keep-journals of the memory service)"
	default:
		return "nothing of it was recorded, or it is not kept any more (--keep-journals of the memory service); a step that was done in a turn before this one is in the trace of that"
	}
}

// told puts the messages into a step that its history names: what steps of this turn said from
// their results, and all others from the session.
func (r *Replayer) told(ctx context.Context, was *past, step *troupev1.ExecuteStepRequest) (given, string, error) {
	g := given{step: step}
	session, err := r.session(ctx, was, step.GetHistory())
	if err != nil {
		return g, "", err
	}
	for i, m := range step.GetHistory() {
		if m.GetSequence() == 0 {
			continue // it is whole
		}
		if said := was.said(m); said != nil {
			step.History[i] = said
			continue
		}
		stored, ok := session[m.GetSequence()]
		if !ok || wire.MessageToProto(stored).GetRole() != m.GetRole() {
			return g, fmt.Sprintf("message %d of its history is not in the session any more, which was compacted or cleared since", m.GetSequence()), nil
		}
		step.History[i] = wire.MessageToProto(stored)
		step.History[i].Untrusted = cmp.Or(m.GetUntrusted(), stored.Untrusted) // the first message of a window may have stood behind others
		g.began = append(g.began, stored)
	}
	return g, "", nil
}

// said is what a step of this turn said; nil: the message is none of theirs. Silent steps have the
// sequence of the message before them, so that of those that have it the first has said it.
func (p *past) said(m *troupev1.Message) *troupev1.Message {
	for _, number := range slices.Sorted(maps.Keys(p.results)) {
		r := p.results[number]
		if r.GetFailure() == nil && r.GetSequence() == m.GetSequence() && r.GetAgent() == m.GetAuthor() {
			said := conversation.Assistant(r.GetAgent(), r.GetText())
			said.Untrusted = r.GetUntrusted()
			said.Sequence, said.Turn = r.GetSequence(), int(p.record.GetTurn())
			return wire.MessageToProto(said)
		}
	}
	return nil
}

// session reads the messages of the session from the first to the last of a history.
func (r *Replayer) session(ctx context.Context, was *past, history []*troupev1.Message) (map[int64]conversation.Message, error) {
	var first, last int64
	for _, m := range history {
		if n := m.GetSequence(); n > 0 && (first == 0 || n < first) {
			first = n
		}
		last = max(last, m.GetSequence())
	}
	found := map[int64]conversation.Message{}
	for after := first - 1; after >= 0 && after < last; {
		messages, err := retry.Do(ctx, func(ctx context.Context) ([]conversation.Message, error) {
			return r.Memory.LoadHistory(ctx, was.ref, after, memory.MaxWindow)
		})
		if err != nil {
			return nil, err
		}
		if len(messages) == 0 {
			break
		}
		for _, m := range messages {
			found[m.Sequence] = m
			after = m.Sequence
		}
	}
	return found, nil
}
