package loop_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"unicode/utf8"

	"github.com/stretchr/testify/require"

	"github.com/troupe-dev/troupe/internal/loop"
	"github.com/troupe-dev/troupe/pkg/event"
	"github.com/troupe-dev/troupe/pkg/llm"
	"github.com/troupe-dev/troupe/pkg/llm/scripted"
	"github.com/troupe-dev/troupe/pkg/tool"
)

// The progress of a tool is emitted while the tool runs, from whichever goroutine it is reported. It is not stored
// in the trace.
func TestLoop_EmitsTheProgressOfTools(t *testing.T) {
	for _, parallel := range []bool{false, true} {
		t.Run(fmt.Sprint("parallel ", parallel), func(t *testing.T) {
			heard := map[string]chan struct{}{"1": make(chan struct{}), "2": make(chan struct{})}
			set := observingTools(t, func(ctx context.Context) {
				var running sync.WaitGroup
				running.Go(func() { tool.Progress(ctx, 1, 2, strings.Repeat("half ", 100)) })
				running.Wait()
				select {
				case <-heard[tool.IdempotencyKey(ctx)]:
				case <-ctx.Done():
				}
			})
			in := newInput("go")
			in.IdempotencyKey = func(number int) string { return fmt.Sprint(number - 1) } // after the number of the model call
			var emitted []string
			_, err := runToEnd(t.Context(), loop.Loop{
				Model: scripted.New(toolCallsReply("spy", "spy"), scripted.Say("done")), Tools: set,
				Parallel: parallel,
			}, in, func(p event.Payload) error {
				switch p := p.(type) {
				case event.ToolStarted:
					emitted = append(emitted, "start "+p.CallID)
				case event.ToolProgress:
					require.Equal(t, "spy", p.Tool)
					require.InDelta(t, 0.5, *p.Fraction, 0)
					require.Equal(t, event.MaxSummaryChars, utf8.RuneCountInString(p.Message))
					emitted = append(emitted, "half "+p.CallID)
					close(heard[p.CallID])
				case event.ToolFinished:
					emitted = append(emitted, "end "+p.CallID)
				}
				return nil
			})
			require.NoError(t, err)
			if parallel {
				require.ElementsMatch(t, []string{"half 1", "half 2"}, emitted[2:4])
				require.Equal(t, []string{"start 1", "start 2", "end 1", "end 2"}, append(emitted[:2:2], emitted[4:]...))
			} else {
				require.Equal(t, []string{"start 1", "half 1", "end 1", "start 2", "half 2", "end 2"}, emitted)
			}
			for _, e := range in.Control.Turn().Entries() {
				require.NotEqual(t, event.ToolProgress{}.Kind(), e.Kind())
			}
		})
	}
}

// When its consumer stops reading, the loop cancels running tools instead of waiting for them.
func TestLoop_CancelsToolsWhenTheConsumerStops(t *testing.T) {
	set := observingTools(t, func(ctx context.Context) {
		tool.Progress(ctx, 1, 2, "")
		<-ctx.Done()
	})
	gone := errors.New("gone")
	_, err := runToEnd(t.Context(), loop.Loop{Model: scripted.New(toolCallsReply("spy"), scripted.Say("done")), Tools: set}, newInput("go"),
		func(p event.Payload) error {
			if _, ok := p.(event.ToolProgress); ok {
				return gone
			}
			return nil
		})
	require.Error(t, err)
}

func TestLoop_EmitsWhyTheModelStopped(t *testing.T) {
	refused := &llm.Error{Provider: "test", Kind: llm.ContentFiltered}
	for name, tc := range map[string]struct {
		replies []scripted.Reply
		want    []event.Finish
		fails   bool
	}{
		"complete reply":         {[]scripted.Reply{scripted.Say("done")}, []event.Finish{event.FinishStop}, false},
		"reply cut at the limit": {[]scripted.Reply{{Deltas: []string{"do"}, Finish: llm.FinishLength}}, []event.Finish{event.FinishLength}, false},
		"reason nobody knows":    {[]scripted.Reply{{Deltas: []string{"do"}, Finish: llm.FinishOther}}, []event.Finish{event.FinishOther}, false},
		"model refuses":          {[]scripted.Reply{{Deltas: []string{"no"}, Finish: llm.FinishRefusal}}, []event.Finish{event.FinishFilter}, false},
		"reply with tool calls":  {[]scripted.Reply{toolCallsReply("spy"), scripted.Say("done")}, []event.Finish{event.FinishCalls, event.FinishStop}, false},
		"content filter":         {[]scripted.Reply{scripted.Fail(refused)}, []event.Finish{event.FinishFilter}, true},
		"other error":            {[]scripted.Reply{scripted.Fail(errors.New("down"))}, nil, true},
	} {
		t.Run(name, func(t *testing.T) {
			var got []event.Finish
			set := observingTools(t, func(context.Context) {})
			_, err := runToEnd(t.Context(), loop.Loop{Model: scripted.New(tc.replies...), Tools: set}, newInput("go"), func(p event.Payload) error {
				if call, ok := p.(event.ModelCall); ok {
					got = append(got, call.Finish)
				}
				return nil
			})
			require.Equal(t, tc.fails, err != nil)
			require.Equal(t, tc.want, got)
		})
	}
}
