package hook_test

import (
	"encoding/json"
	"errors"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/troupe-dev/troupe/pkg/event"
	"github.com/troupe-dev/troupe/pkg/execution"
	"github.com/troupe-dev/troupe/pkg/failure"
	"github.com/troupe-dev/troupe/pkg/hook"
	"github.com/troupe-dev/troupe/pkg/llm"
)

var llmRequest llm.Request

// Req: AD-37
func TestTurn_EmitsEventsOfItsOwnKinds(t *testing.T) {
	var heard []event.Event
	numbers := &hook.Numbers{}
	agents := make([]*hook.Control, 2) // of one flow
	for i := range agents {
		agents[i] = hook.New(hook.Start{Info: hook.Info{Agent: "test", TurnID: "turn-1"}, Numbers: numbers, Emit: func(e event.Event) error {
			heard = append(heard, e)
			return nil
		}})
	}
	turn := agents[0].Turn()
	require.NoError(t, turn.Emit("order.placed", map[string]any{"id": 7}))
	require.NoError(t, turn.Emit("idle", nil))
	require.Equal(t, []event.Payload{event.Custom{Name: "order.placed", Data: json.RawMessage(`{"id":7}`)}, event.Custom{Name: "idle"}},
		[]event.Payload{heard[0].Payload, heard[1].Payload})
	require.Equal(t, []string{"turn-1/0/1", "turn-1/0/2"}, []string{heard[0].ID(), heard[1].ID()})
	require.Equal(t, heard, turn.Entries())

	for wrong, err := range map[string]error{
		"use a name of 1 to 64":   turn.Emit("Order placed", nil),
		"its data cannot be JSON": turn.Emit("a", func() {}),
		"use at most 65536":       turn.Emit("a", strings.Repeat("x", event.MaxCustomData)),
	} {
		require.True(t, failure.Is(err, failure.AgentLogic), wrong)
		require.ErrorContains(t, err, wrong)
	}
	require.Len(t, heard, 2, "nothing is emitted")

	for range event.MaxCustomEvents - 2 {
		require.NoError(t, agents[1].Turn().Emit("tick", nil))
	}
	err := turn.Emit("tick", nil)
	require.True(t, failure.Is(err, failure.ResourceQuota), "%v", err)
	require.ErrorContains(t, err, "at most 256 events of its own")
	turn.Warn("W", "the turn continues")
	require.NoError(t, agents[0].Events.Err())
	require.Len(t, heard, event.MaxCustomEvents+1)
}

// Req: CO-46, CO-47
func TestControl_NumbersEventsAndKeepsThem(t *testing.T) {
	var heard []event.Event
	numbers := &hook.Numbers{}
	agents := make([]*hook.Control, 4) // of one flow
	var mu sync.Mutex
	for i := range agents {
		agents[i] = hook.New(hook.Start{
			Info: hook.Info{Agent: "test", TurnID: "turn-1", Branch: "flow.test"}, Numbers: numbers,
			Emit: func(e event.Event) error {
				mu.Lock()
				defer mu.Unlock()
				heard = append(heard, e)
				return nil
			},
		})
	}
	var running sync.WaitGroup
	for _, c := range agents {
		running.Go(func() {
			for range 50 {
				_ = c.Events.Emit(event.TextDelta{Text: "a"})
				c.Turn().Warn("W", "w")
				c.Turn().Think(event.Plan, "p")
			}
		})
	}
	running.Wait()
	ids := map[string]bool{}
	for _, e := range heard {
		require.False(t, ids[e.ID()], "%s twice", e.ID())
		ids[e.ID()] = true
		require.False(t, e.Time.IsZero())
		require.Equal(t, []string{"test", "flow.test", "turn-1"}, []string{e.Author, e.Branch, e.Invocation})
	}
	require.Len(t, ids, 600)
	for _, c := range agents {
		require.Len(t, c.Turn().Entries(), 100, "all but the text deltas, whether or not there is a consumer")
	}

	silent := hook.New(hook.Start{})
	require.NoError(t, silent.Events.Emit(event.UserInput{Turn: 1}))
	require.Len(t, silent.Turn().Entries(), 1)
}

// Req: AD-9
func TestControl_ForwardsEventsOfOtherAgents(t *testing.T) {
	var heard []event.Event
	c := hook.New(hook.Start{Info: hook.Info{Agent: "mine", TurnID: "turn-1"}, Emit: func(e event.Event) error { heard = append(heard, e); return nil }})
	require.NoError(t, c.Events.Forward(event.Event{Payload: event.Message{Text: "a"}}))
	require.NoError(t, c.Events.Forward(event.Event{
		Author: "other", Branch: "flow.other", Invocation: "turn-2", Sequence: 7,
		Payload: event.Message{Text: "b"},
	}))
	require.Equal(t, "mine", heard[0].Author)
	require.Equal(t, "turn-1/0/1", heard[0].ID())
	require.Equal(t, "other", heard[1].Author)
	require.Equal(t, "turn-2/0/7", heard[1].ID())
}

// After a consumer has failed on an event it gets no further event, because an iterator must not be called again
// after it stops.
func TestControl_EmitsNothingAfterAFailedEvent(t *testing.T) {
	gone, emitted := errors.New("gone"), 0
	c := hook.New(hook.Start{Emit: func(event.Event) error { emitted++; return gone }})
	require.NoError(t, c.Events.Err())
	require.ErrorIs(t, c.Events.Emit(event.TextDelta{Text: "a"}), gone)
	require.ErrorIs(t, c.Events.Emit(event.TextDelta{Text: "b"}), gone)
	require.ErrorIs(t, c.Events.Forward(event.Event{Payload: event.TextDelta{Text: "c"}}), gone)
	c.Turn().Warn("W", "w")
	require.ErrorIs(t, c.Events.Err(), gone)
	require.Equal(t, 1, emitted)
}

// Req: CO-21
func TestTurn_ContextPercentDescribesTheLastCall(t *testing.T) {
	for _, tc := range []struct{ limit, tokens, want int64 }{{0, 64_000, 50}, {1000, 250, 25}, {-1, 128_000, 100}} {
		c := hook.New(hook.Start{Info: hook.Info{Context: tc.limit}})
		require.Zero(t, c.Turn().ContextPercent(), "before the first call")
		c.Progress.AddUsage(execution.Usage{InputTokens: 1, ModelCalls: 1}, false)
		c.Progress.AddUsage(execution.Usage{InputTokens: tc.tokens, ModelCalls: 1}, false)
		c.Progress.AddUsage(execution.Usage{InputTokens: 7, ModelCalls: 1}, true)
		require.InDelta(t, tc.want, c.Turn().ContextPercent(), 0.001)
		require.Equal(t, execution.Usage{InputTokens: tc.tokens + 8, ModelCalls: 3}, c.Turn().Usage())
	}
}

// Req: CO-54
func TestCompletion_TranscriptIsJSON(t *testing.T) {
	text, err := (&hook.Completion{Turn: hook.New(hook.Start{}).Turn()}).Transcript()
	require.NoError(t, err)
	require.True(t, json.Valid([]byte(text)))
}
