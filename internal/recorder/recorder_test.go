package recorder_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/troupe-dev/troupe/internal/recorder"
	"github.com/troupe-dev/troupe/internal/toolrounds"
	"github.com/troupe-dev/troupe/pkg/conversation"
	"github.com/troupe-dev/troupe/pkg/execution"
	"github.com/troupe-dev/troupe/pkg/memory"
	"github.com/troupe-dev/troupe/pkg/memory/inmem"
	"github.com/troupe-dev/troupe/pkg/session"
)

// newRecorder starts a turn. It returns the recorder of the turn's first step, and a function that reads the
// stored journal of the step.
func newRecorder(t *testing.T) (j *recorder.Recorder, stored func() []execution.Entry) {
	t.Helper()
	store := inmem.New(inmem.Config{})
	ref := session.Ref{Tenant: "default", Session: "s"}
	begun, err := store.BeginTurn(t.Context(), memory.Begin{
		Ref: ref, TurnID: "t1", TraceID: "one", Fingerprint: "f", Message: conversation.User("hello"), LeaseTTL: time.Minute, Window: 10,
	})
	require.NoError(t, err)
	hold := memory.Lease{Ref: ref, TurnID: "t1", Epoch: begun.Turn.Epoch}
	ctx, end := context.WithCancelCause(t.Context())
	j, err = recorder.New(ctx, end, store, hold, 1, false)
	require.NoError(t, err)
	t.Cleanup(func() { j.Close(); end(nil); j.Wait() })
	return j, func() []execution.Entry {
		entries, err := store.LoadJournal(t.Context(), hold, 1, -1)
		require.NoError(t, err)
		return entries
	}
}

// Entries that only a replay needs are not written on their own; they wait for the commit.
func TestRecorder_WritesReplayEntriesWithTheCommit(t *testing.T) {
	j, stored := newRecorder(t)
	given := execution.Entry{Phase: execution.Intent, StepInput: []byte("this")}
	last := execution.Entry{Number: 1, Phase: execution.Done, Digest: "a b c", Reply: conversation.Assistant("echo", "hi")}
	for _, e := range []execution.Entry{given, last} {
		e.Late = true
		j.Record(e)
	}
	j.Wait() // no write is running
	require.Empty(t, stored())
	left, err := j.Unwritten(t.Context())
	require.NoError(t, err)
	require.Equal(t, []execution.Entry{given, last}, left)
	require.NoError(t, j.Sync(t.Context()), "who waits has it written")
	require.Len(t, stored(), 2)
	left, err = j.Unwritten(t.Context())
	require.NoError(t, err)
	require.Empty(t, left)
}

// DropLate drops the last reply of a failed step. It keeps the step's input and the entries that others depend on.
func TestRecorder_DropLateKeepsTheInput(t *testing.T) {
	j, stored := newRecorder(t)
	reply := func(number int, late bool) execution.Entry {
		return execution.Entry{Number: number, Phase: execution.Done, Late: late, Reply: conversation.Assistant("echo", "hi")}
	}
	j.Record(execution.Entry{Phase: execution.Intent, StepInput: []byte("this"), Late: true})
	j.DropLate()
	j.Record(reply(1, true))
	j.Record(reply(2, false))
	j.Record(reply(3, true))
	j.DropLate()
	require.NoError(t, j.Sync(t.Context()))
	var numbers []int
	for _, e := range stored() {
		numbers = append(numbers, e.Number)
	}
	require.Equal(t, []int{0, 1, 2}, numbers)
}

// Entries that exceed the limit of a commit are written before it.
func TestRecorder_WritesEntriesThatExceedACommit(t *testing.T) {
	j, stored := newRecorder(t)
	for n := range 5 {
		j.Record(execution.Entry{
			Number: n + 1, Phase: execution.Done, Late: true, Reply: conversation.Assistant("echo", strings.Repeat("a", conversation.MaxMessageBytes-100)),
		})
	}
	left, err := j.Unwritten(t.Context())
	require.NoError(t, err)
	require.Empty(t, left)
	require.Len(t, stored(), 5)
}

// The rounds of a commit refer to durable entries. They contain texts whose entries are not durable yet, texts
// that a handler changed, and texts of side calls.
func TestRecorder_ReferNamesDurableEntries(t *testing.T) {
	j, _ := newRecorder(t)
	asks := conversation.Assistant("research", "I look.")
	asks.ToolCalls = []conversation.ToolCall{{ID: "1", Name: "lookup"}}
	found := conversation.Message{Role: conversation.RoleTool, Text: "rain", ToolCallID: "1", Untrusted: "tool lookup"}
	j.Record(execution.Entry{Number: 1, Phase: execution.Done, Reply: asks})
	j.Record(execution.Entry{Number: 2, Phase: execution.Done, Tool: "lookup", Text: "rain"})
	j.Record(execution.Entry{Number: 3, Phase: execution.Done, Reply: conversation.Assistant("research", "aside"), SideCall: true})
	require.NoError(t, j.Sync(t.Context()))
	j.Record(execution.Entry{Number: 4, Phase: execution.Done, Reply: conversation.Assistant("research", "late"), Late: true})

	aside, late := conversation.Assistant("research", "aside"), conversation.Assistant("research", "late")
	changed := found
	changed.Text = "rain, they say"
	rounds := toolrounds.Latest([]conversation.Message{asks, found, aside, late, changed, conversation.User("rain")})
	named, inlined := asks, found
	named.Text, named.ToolCalls, inlined.Text = "", nil, ""
	require.Equal(t, []memory.RoundMessage{
		{Message: named, Entry: 1}, {Message: inlined, Entry: 2}, {Message: aside}, {Message: late}, {Message: changed}, {Message: conversation.User("rain")},
	}, j.ReferToEntries(rounds))
	require.Equal(t, asks, rounds[0].Message, "what was given is unchanged")
}
