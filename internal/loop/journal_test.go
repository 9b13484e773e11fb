package loop_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"

	"github.com/troupe-dev/troupe/internal/loop"
	"github.com/troupe-dev/troupe/internal/stepjournal"
	"github.com/troupe-dev/troupe/pkg/conversation"
	"github.com/troupe-dev/troupe/pkg/event"
	"github.com/troupe-dev/troupe/pkg/execution"
	"github.com/troupe-dev/troupe/pkg/failure"
	"github.com/troupe-dev/troupe/pkg/hook"
	"github.com/troupe-dev/troupe/pkg/llm"
	"github.com/troupe-dev/troupe/pkg/llm/scripted"
	"github.com/troupe-dev/troupe/pkg/tool"
)

// fakeJournal is a journal that is kept across all attempts of a step. Entries are durable at once, unless
// durableOnSync is set. Then Sync makes them durable.
type fakeJournal struct {
	durable       []execution.Entry
	pending       []execution.Entry
	durableOnSync bool
	syncCount     int
	syncErr       error
}

func (j *fakeJournal) Replay(number int, phase execution.Phase) (execution.Entry, bool) {
	for _, e := range j.durable {
		if e.Number == number && e.Phase == phase {
			return e, true
		}
	}
	return execution.Entry{}, false
}

func (j *fakeJournal) Record(e execution.Entry) {
	if j.durableOnSync {
		j.pending = append(j.pending, e)
		return
	}
	j.durable = append(j.durable, e)
}

func (j *fakeJournal) Sync(context.Context) error {
	j.syncCount++
	j.durable, j.pending = append(j.durable, j.pending...), nil
	return j.syncErr
}

var errKilled = errors.New("the worker was killed")

// toolRuns records the tool runs of all attempts of a step.
type toolRuns struct {
	mu       sync.Mutex
	recorded []string // effect and idempotency key of each run
}

// tools returns one tool for each kind of effect. The name of the tool is the effect.
func (r *toolRuns) tools(t *testing.T) *tool.Set {
	t.Helper()
	var all []tool.Tool
	for _, effect := range []execution.Effect{execution.Read, execution.Idempotent, execution.AtMostOnce} {
		one, err := tool.Func(string(effect), "A tool of the test.", func(ctx context.Context, in wordArgs) (string, error) {
			r.mu.Lock()
			defer r.mu.Unlock()
			if err := hook.InTool(ctx).Memory().Set("last", in.Word); err != nil {
				return "", err
			}
			r.recorded = append(r.recorded, string(effect)+" "+tool.IdempotencyKey(ctx))
			return "did " + in.Word, nil
		})
		require.NoError(t, err)
		all = append(all, tool.WithEffect(effect, one))
	}
	set, err := tool.NewSet(all...)
	require.NoError(t, err)
	return set
}

func idempotencyKey(number int) string { return fmt.Sprintf("key-%d", number) }

// killedConsumer ends a run after a number of events, as the death of its worker does.
type killedConsumer struct {
	eventsLeft int // number of events to let through
	events     []event.Payload
}

func (k *killedConsumer) emit(e event.Payload) error {
	if k.eventsLeft == 0 {
		return errKilled
	}
	k.eventsLeft--
	k.events = append(k.events, e)
	return nil
}

// newScriptedModel returns a model that calls one tool of each effect in one round, does so again, and then
// answers. The first replies may be skipped.
func newScriptedModel(from int) *scripted.Model {
	round := func(words ...string) scripted.Reply {
		return scripted.Call(toolCall("a", "read", words[0]), toolCall("b", "idempotent", words[1]), toolCall("c", "at_most_once", words[2]))
	}
	return scripted.New([]scripted.Reply{round("1", "2", "3"), round("4", "5", "6"), scripted.Say("Done.")}[from:]...)
}

// Wherever the worker dies, its successor ends with as many messages. It repeats no finished call, and a tool
// that may run only once never runs twice.
func TestRun_ContinuesAfterALostAttempt(t *testing.T) {
	var whole []conversation.Message
	for after := 0; ; after++ {
		j, w := &fakeJournal{}, &toolRuns{}
		in := loop.Input{Journal: j, IdempotencyKey: idempotencyKey}
		l := loop.Loop{Model: newScriptedModel(0), Tools: w.tools(t)}
		d := &killedConsumer{eventsLeft: after}
		out, err := runToEnd(t.Context(), l, in, d.emit)
		if err == nil {
			require.Greater(t, after, 10, "the run was long enough")
			require.Len(t, out.Messages, 9)
			return
		}
		require.ErrorIs(t, err, errKilled)

		// The successor asks its model only for replies that are not in the journal.
		replies := 0
		for _, e := range j.durable {
			if e.Tool == "" {
				replies++
			}
		}
		l.Model = newScriptedModel(replies)
		out, err = runToEnd(t.Context(), l, in, ignoreEvents)
		require.NoError(t, err)
		require.Equal(t, "Done.", out.Text)
		require.Equal(t, 3, out.Usage.ModelCalls, "also those of the lost attempt")
		if whole == nil {
			whole = out.Messages
		}
		require.Len(t, out.Messages, len(whole))

		times := map[string]int{}
		for _, did := range w.recorded {
			times[did]++
		}
		require.LessOrEqual(t, times["at_most_once "+idempotencyKey(4)], 1) // 0 means lost between the intent and the run
		require.LessOrEqual(t, times["at_most_once "+idempotencyKey(8)], 1)
		require.LessOrEqual(t, len(times), 6, "every call has one key in all attempts")
	}
}

func TestRun_IdempotentToolGetsTheSameKeyAgain(t *testing.T) {
	j, w := &fakeJournal{durableOnSync: true}, &toolRuns{}
	l := loop.Loop{Model: scripted.New(scripted.Call(toolCall("a", "idempotent", "x")), scripted.Say("Done.")), Tools: w.tools(t)}
	in := loop.Input{Journal: j, IdempotencyKey: idempotencyKey}
	_, err := runToEnd(t.Context(), l, in, (&killedConsumer{eventsLeft: 2}).emit) // lost after the call, before its result is durable
	require.ErrorIs(t, err, errKilled)
	j.pending = nil

	out, err := runToEnd(t.Context(), l, in, ignoreEvents)
	require.NoError(t, err)
	require.Equal(t, "Done.", out.Text)
	require.Equal(t, []string{"idempotent key-2", "idempotent key-2"}, w.recorded)
}

func TestRun_DoesNotRepeatACallInDoubt(t *testing.T) {
	j, w := &fakeJournal{durableOnSync: true}, &toolRuns{}
	l := loop.Loop{Model: scripted.New(scripted.Call(toolCall("a", "at_most_once", "x")), scripted.Say("I do not know.")), Tools: w.tools(t)}
	in := loop.Input{Journal: j, IdempotencyKey: idempotencyKey}
	_, err := runToEnd(t.Context(), l, in, (&killedConsumer{eventsLeft: 2}).emit)
	require.ErrorIs(t, err, errKilled)
	j.pending = nil

	var seen eventRecorder
	out, err := runToEnd(t.Context(), l, in, seen.emit)
	require.NoError(t, err)
	require.Len(t, w.recorded, 1)
	require.Equal(t, event.ToolUnknownOutcome, out.Calls[0].Status)
	require.Contains(t, out.Messages[1].Text, "UNKNOWN_OUTCOME")
	var finished event.ToolFinished
	for _, e := range seen.events {
		if f, ok := e.(event.ToolFinished); ok {
			finished = f
		}
	}
	require.Equal(t, event.ToolUnknownOutcome, finished.Status)

	// Later attempts get the same result.
	require.NoError(t, j.Sync(t.Context()))
	l.Model = scripted.New(scripted.Say("Still not."))
	out, err = runToEnd(t.Context(), l, in, ignoreEvents)
	require.NoError(t, err)
	require.Equal(t, event.ToolUnknownOutcome, out.Calls[0].Status)
	require.Len(t, w.recorded, 1)
}

func TestRun_FailsIfItDiffersFromTheJournal(t *testing.T) {
	j, w := &fakeJournal{}, &toolRuns{}
	l := loop.Loop{Model: newScriptedModel(0), Tools: w.tools(t)}
	_, err := runToEnd(t.Context(), l, loop.Input{Journal: j}, (&killedConsumer{eventsLeft: 4}).emit)
	require.ErrorIs(t, err, errKilled)

	for name, change := range map[string]func(*execution.Entry){
		"other arguments":       func(e *execution.Entry) { e.Digest = stepjournal.CallDigest(e.Tool, `{"word": "other"}`) },
		"a model call":          func(e *execution.Entry) { e.Tool, e.Digest = "", "" },
		"a tool, not the model": func(e *execution.Entry) { e.Number = 1 },
	} {
		t.Run(name, func(t *testing.T) {
			changed := &fakeJournal{durable: append([]execution.Entry(nil), j.durable...)}
			change(&changed.durable[1])
			if changed.durable[1].Number == 1 {
				changed.durable = changed.durable[1:2]
			}
			_, err := runToEnd(t.Context(), l, loop.Input{Journal: changed}, ignoreEvents)
			require.True(t, failure.Is(err, failure.Nondeterminism), "%v", err)
			require.ErrorContains(t, err, "changed under a running step")
		})
	}
}

func TestRun_SyncsOnlyForToolsWithAnEffect(t *testing.T) {
	for name, want := range map[string]int{"read": 0, "idempotent": 1, "at_most_once": 1, "nothing of that name": 0} {
		t.Run(name, func(t *testing.T) {
			j, w := &fakeJournal{}, &toolRuns{}
			l := loop.Loop{Model: scripted.New(scripted.Call(toolCall("a", name, "x")), scripted.Say("Done.")), Tools: w.tools(t)}
			_, err := runToEnd(t.Context(), l, loop.Input{Journal: j}, ignoreEvents)
			require.NoError(t, err)
			require.Equal(t, want, j.syncCount)
		})
	}
}

func TestRun_EndsWhenTheJournalIsFenced(t *testing.T) {
	w := &toolRuns{}
	fenced := failure.New(failure.Fenced, "test", "another worker has the step")
	j := &fakeJournal{syncErr: fenced}
	l := loop.Loop{Model: newScriptedModel(0), Tools: w.tools(t)}
	_, err := runToEnd(t.Context(), l, loop.Input{Journal: j}, ignoreEvents)
	require.ErrorIs(t, err, fenced)
	require.Equal(t, []string{"read "}, w.recorded, "nothing with an effect ran")
}

func TestWith_KeepsTheStarterInterface(t *testing.T) {
	plain, err := tool.Func("plain", "A tool of the test.", func(context.Context, wordArgs) (string, error) { return "", nil })
	require.NoError(t, err)
	require.Equal(t, execution.AtMostOnce, tool.EffectOf(plain), "no effect was declared")
	require.Equal(t, execution.Read, tool.EffectOf(tool.WithEffect(execution.Read, plain)))
	_, starts := tool.WithEffect(execution.Read, plain).(tool.Starter)
	require.False(t, starts)
	wrapped := tool.WithEffect(execution.Idempotent, startedTool{plain})
	_, starts = wrapped.(tool.Starter)
	require.True(t, starts)
	require.Equal(t, execution.Idempotent, tool.EffectOf(wrapped))
	require.Empty(t, cmp.Diff(plain.Spec(), wrapped.Spec()))
}

type startedTool struct{ tool.Tool }

func (startedTool) Start(context.Context) error { return nil }
func (startedTool) Close() error                { return nil }

// Another attempt of the step knows that a recorded answer may be incomplete.
func TestLoop_ReplayedAnswerIsStillIncomplete(t *testing.T) {
	journal := &fakeJournal{}
	for _, model := range []*scripted.Model{scripted.New(scripted.Reply{Deltas: []string{"So f"}, Finish: llm.FinishLength}), scripted.New()} {
		in := newInput("hi")
		in.Journal, in.RecordFinalReply = journal, true
		var got eventRecorder
		out, err := runToEnd(t.Context(), loop.Loop{Model: model}, in, got.emit)
		require.NoError(t, err)
		require.Equal(t, "So f", out.Text)
		require.Equal(t, event.FinishLength, out.Incomplete)
	}
}
