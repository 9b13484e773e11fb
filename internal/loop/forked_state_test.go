package loop_test

import (
	"context"
	"encoding/json"
	"errors"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/troupe-dev/troupe/internal/loop"
	"github.com/troupe-dev/troupe/pkg/conversation"
	"github.com/troupe-dev/troupe/pkg/event"
	"github.com/troupe-dev/troupe/pkg/hook"
	"github.com/troupe-dev/troupe/pkg/llm/scripted"
	"github.com/troupe-dev/troupe/pkg/tool"
)

// A tool that fails, panics or is interrupted loses the changes that it made to the session, and so does its entry in the
// journal. The changes of tools that succeed in the same round stay.
//
// Req: CO-39c
func TestRun_FailedToolsChangeNothing(t *testing.T) {
	var stop context.CancelFunc // of the run under way
	ends := map[string]func(ctx context.Context) error{
		"fine":        func(context.Context) error { return nil },
		"fails":       func(context.Context) error { return errors.New("down") },
		"panics":      func(context.Context) error { panic("oh") },
		"interrupted": func(ctx context.Context) error { stop(); <-ctx.Done(); return ctx.Err() },
	}
	var tools []tool.Tool
	for name, end := range ends {
		one, err := tool.Func(name, "Changes the state.", func(ctx context.Context, _ struct{}) (string, error) {
			if err := hook.InTool(ctx).Memory().Set(name, 1); err != nil {
				return "", err
			}
			return "done", end(ctx)
		})
		require.NoError(t, err)
		tools = append(tools, one)
	}
	set, err := tool.NewSet(tools...)
	require.NoError(t, err)
	for _, parallel := range []bool{false, true} {
		for _, name := range []string{"fails", "panics", "interrupted"} {
			stopped, stopRun := context.WithCancel(t.Context())
			stop = stopRun
			journal := &fakeJournal{}
			model := scripted.New(scripted.Call(conversation.ToolCall{ID: "1", Name: "fine"}, conversation.ToolCall{ID: "2", Name: name}), scripted.Say("ok"))
			in := newInput("go")
			in.Journal, in.Stop, in.RecordFinalReply = journal, stopped, true
			out, err := runToEnd(t.Context(), loop.Loop{Model: model, Tools: set, Parallel: parallel}, in, ignoreEvents)
			stop()
			require.NoError(t, err)
			require.Len(t, out.Calls, 2)
			require.NotEqual(t, event.ToolSuccess, out.Calls[1].Status)
			if name != "interrupted" || !parallel { // otherwise the stop may interrupt both
				require.Equal(t, map[string]json.RawMessage{"fine": json.RawMessage("1")}, in.Control.ChangesToStore(), "%s, parallel %v", name, parallel)
			}
			require.NotContains(t, in.Control.ChangesToStore(), name)
			for _, e := range journal.durable {
				require.NotContains(t, e.Reply.Text, `"`+name+`"`, "the journal of a successor")
			}
		}
	}
}
