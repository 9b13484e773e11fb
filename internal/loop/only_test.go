package loop_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/troupe-dev/troupe/internal/loop"
	"github.com/troupe-dev/troupe/pkg/event"
	"github.com/troupe-dev/troupe/pkg/execution"
	"github.com/troupe-dev/troupe/pkg/failure"
	"github.com/troupe-dev/troupe/pkg/llm/scripted"
)

// The model is offered only the tools that the step may use. A call of any other tool is rejected and never runs.
// Req: OC-13
func TestLoop_OffersAndRunsOnlyAllowedTools(t *testing.T) {
	var calls []string
	set := newTools(t, &calls)
	for name, c := range map[string]struct {
		only          *execution.Tools
		offered       []string
		wantRejection string
	}{
		"some": {
			&execution.Tools{Names: []string{"silent", "gone", "fail"}},
			[]string{"silent", "fail"},
			`The tool "echo" may not be used in this step; there are silent, fail.`,
		},
		"none": {&execution.Tools{}, nil, `The tool "echo" may not be used in this step; there are none.`},
	} {
		model := scripted.New(scripted.Call(toolCall("1", "echo", "a"), toolCall("2", "nothing", "b")), scripted.Say("done"))
		in := newInput("go")
		in.AllowedTools = c.only
		out, err := runToEnd(t.Context(), loop.Loop{Model: model, Tools: set}, in, ignoreEvents)
		require.NoError(t, err, name)
		require.Equal(t, "done", out.Text)
		var offered []string
		for _, spec := range model.Requests()[0].Tools {
			offered = append(offered, spec.Name)
		}
		require.Equal(t, c.offered, offered, "in this order")
		require.Empty(t, calls, "it never runs")
		require.Equal(t, event.ToolNotFound, out.Calls[0].Status)
		require.Equal(t, string(failure.PolicyAllowlist), out.Calls[0].ErrorType)
		require.Equal(t, c.wantRejection, out.Calls[0].Result)
		require.NotEqual(t, string(failure.PolicyAllowlist), out.Calls[1].ErrorType, "this tool does not exist")
		require.Equal(t, c.wantRejection, out.Messages[1].Text, "the model reads it")
	}
	model := scripted.New(scripted.Call(toolCall("1", "echo", "a")), scripted.Say("done"))
	_, err := runToEnd(t.Context(), loop.Loop{Model: model, Tools: set}, newInput("go"), ignoreEvents)
	require.NoError(t, err)
	require.Len(t, model.Requests()[0].Tools, 4, "all")
	require.Equal(t, []string{"a"}, calls)
}
