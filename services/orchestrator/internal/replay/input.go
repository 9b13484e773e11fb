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

// stepInput is the input of a recorded step.
type stepInput struct {
	step            *troupev1.ExecuteStepRequest
	initialMessages []conversation.Message // the messages of its history that the session held when the turn began
}

// loadInput rebuilds the input of a step from its recording, which refers to messages of the session and to
// results of the turn. When that is impossible, why is the reason (empty otherwise).
func (r *Replayer) loadInput(ctx context.Context, was *recordedTurn, number int) (_ stepInput, why string, _ error) {
	entries, err := retry.Do(ctx, func(ctx context.Context) ([]execution.Entry, error) {
		return r.Memory.Recording(ctx, was.ref, was.record.GetTurnId(), number, 0)
	})
	switch {
	case failure.Is(err, failure.SessionDeleted):
		return stepInput{}, "its session was deleted, and what was recorded with it", nil
	case failure.Is(err, failure.NotFound):
		return stepInput{}, "its session or its turn is not kept any more", nil
	case err != nil:
		return stepInput{}, "", err
	case len(entries) == 0 || entries[0].Number != 0:
		return stepInput{}, missingRecordingReason(was.results[number]), nil
	}
	step := &troupev1.ExecuteStepRequest{}
	if err := proto.Unmarshal(entries[0].StepInput, step); err != nil {
		return stepInput{}, "", failure.New(failure.AgentContract, op, "the recording cannot be read; another version wrote it").Because(err)
	}
	step.Epoch, step.Attempt = 1, 1
	for i, prior := range step.GetPrior() {
		result := was.results[int(prior.GetStep())]
		if prior.GetFailure() == nil && result == nil {
			return stepInput{}, fmt.Sprintf("the trace does not have the result of the earlier step %d", prior.GetStep()), nil
		}
		if prior.GetFailure() == nil {
			step.Prior[i] = result
		}
	}
	return r.loadMessages(ctx, was, step)
}

// missingRecordingReason returns the reason why a step has no recording, as users read it.
func missingRecordingReason(result *troupev1.StepResult) string {
	switch {
	case len(result.GetPending()) > 0:
		return "its calls waited, and its recording belongs to the turn that answered them: replay the trace of that turn"
	case result.GetFailure() != nil:
		return "it failed before anything was recorded, " +
			"or its recording belongs to the turn that resumed this one, or is no longer kept (--keep-journals of the memory service)"
	default:
		return "nothing was recorded, or the recording is no longer kept (--keep-journals of the memory service); " +
			"a step that an earlier turn ran is recorded in the trace of that turn"
	}
}

// loadMessages loads the messages that the recorded history of a step refers to. Messages of this turn come from
// the results of its steps, and all others from the session.
func (r *Replayer) loadMessages(ctx context.Context, was *recordedTurn, step *troupev1.ExecuteStepRequest) (stepInput, string, error) {
	g := stepInput{step: step}
	session, err := r.loadSessionMessages(ctx, was, step.GetHistory())
	if err != nil {
		return g, "", err
	}
	for i, m := range step.GetHistory() {
		if m.GetSequence() == 0 {
			continue // the recording has the whole message
		}
		if said := was.messageOfStep(m); said != nil {
			step.History[i] = said
			continue
		}
		stored, ok := session[m.GetSequence()]
		if !ok || wire.MessageToProto(stored).GetRole() != m.GetRole() {
			return g, fmt.Sprintf("message %d of its history is not in the session any more, which was compacted or cleared since", m.GetSequence()), nil
		}
		step.History[i] = wire.MessageToProto(stored)
		step.History[i].Untrusted = cmp.Or(m.GetUntrusted(), stored.Untrusted) // an untrusted message before the window may have influenced its first message
		g.initialMessages = append(g.initialMessages, stored)
	}
	return g, "", nil
}

// messageOfStep returns the message that a step of this turn added (nil when no step did). A hidden step has the
// sequence of the message before it, so the first step with the sequence is the one that added the message.
func (t *recordedTurn) messageOfStep(m *troupev1.Message) *troupev1.Message {
	for _, number := range slices.Sorted(maps.Keys(t.results)) {
		r := t.results[number]
		if r.GetFailure() == nil && r.GetSequence() == m.GetSequence() && r.GetAgent() == m.GetAuthor() {
			said := conversation.Assistant(r.GetAgent(), r.GetText())
			said.Untrusted = r.GetUntrusted()
			said.Sequence, said.Turn = r.GetSequence(), int(t.record.GetTurn())
			return wire.MessageToProto(said)
		}
	}
	return nil
}

// loadSessionMessages reads all messages of the session between the first and the last message of a history.
func (r *Replayer) loadSessionMessages(ctx context.Context, was *recordedTurn, history []*troupev1.Message) (map[int64]conversation.Message, error) {
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
