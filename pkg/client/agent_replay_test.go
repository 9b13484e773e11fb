package client_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/troupe-dev/troupe/internal/replay"
	"github.com/troupe-dev/troupe/internal/stepjournal"
	"github.com/troupe-dev/troupe/pkg/agent"
	"github.com/troupe-dev/troupe/pkg/agent/flow"
	"github.com/troupe-dev/troupe/pkg/conversation"
	"github.com/troupe-dev/troupe/pkg/execution"
	"github.com/troupe-dev/troupe/pkg/llm/scripted"
	"github.com/troupe-dev/troupe/pkg/tool"
)

// A replay of a step calls no remote agent. If the remote agent is called as a tool, the recording contains its
// result. If it is the agent of the step, the recording lacks the result, and the replay fails.
func TestAgent_NotCalledInReplay(t *testing.T) {
	m := &fakeMesh{events: flowEvents()}
	remote, err := serveMesh(t, m).Agent("research", agent.Config{})
	require.NoError(t, err)
	asTool, err := flow.AsTool(remote, flow.AsToolConfig{})
	require.NoError(t, err)
	above := func(replies ...scripted.Reply) *agent.Agent {
		made, err := agent.New(agent.Config{Name: "above", Model: scripted.New(replies...), Tools: []tool.Tool{asTool}})
		require.NoError(t, err)
		return made
	}
	recorder := newJournal()
	inv := agent.Invocation{Step: newStep()}
	inv.Step.Journal, inv.Step.Recorded = recorder, true
	_, was, err := runAgent(t.Context(), above(
		scripted.Call(conversation.ToolCall{ID: "c1", Name: "research", Arguments: `{"request":"Look it up."}`}), scripted.Say("Done.")), inv)
	require.NoError(t, err)
	require.Len(t, m.requests, 1)

	var entries []execution.Entry
	for _, phases := range recorder.entries {
		for _, e := range phases {
			entries = append(entries, e)
		}
	}
	sealed := replay.New(entries, was.Result)
	inv.Step.Journal = sealed
	_, now, err := runAgent(t.Context(), above(), inv)
	require.Nil(t, sealed.Compare(was.Result, now.Result, err))
	require.Equal(t, "Done.", now.Result.Text)
	require.Len(t, m.requests, 1)

	inv.Step.Journal = replay.New(nil, execution.Result{})
	_, _, err = runAgent(t.Context(), remote, inv)
	require.True(t, stepjournal.IsUnrecorded(err), "%v", err)
	require.Len(t, m.requests, 1)
}
