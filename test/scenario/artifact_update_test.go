package scenario

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/troupe-dev/troupe/pkg/agent"
	"github.com/troupe-dev/troupe/pkg/conversation"
	troupev1 "github.com/troupe-dev/troupe/pkg/gen/troupe/v1"
	"github.com/troupe-dev/troupe/pkg/hook"
	"github.com/troupe-dev/troupe/pkg/llm/scripted"
	"github.com/troupe-dev/troupe/pkg/tool"
	"github.com/troupe-dev/troupe/test/rig"
)

// Clients of Orchestrate and of WatchTrace see an artifact grow, and can load it when an event says that it is complete.
//
// Req: LP-44
func TestArtifact_ClientsSeeItGrow(t *testing.T) {
	t.Parallel()
	m := rig.StartInProcess(t, rig.Config{})
	write, err := tool.Func("write", "Writes a report.", func(ctx context.Context, _ struct{}) (string, error) {
		memory := hook.InTool(ctx).Memory()
		for _, chapter := range []string{"one ", string(make([]byte, 4<<10))} {
			if _, err := memory.AppendArtifact(ctx, "report.md", "text/markdown", []byte(chapter), false); err != nil {
				return "", err
			}
		}
		_, err := memory.AppendArtifact(ctx, "report.md", "text/markdown", []byte("end"), true)
		return "written", err
	})
	require.NoError(t, err)
	model := scripted.New(scripted.Call(conversation.ToolCall{Name: "write"}), scripted.Say("It is written."))
	m.HostWorker("writer", rig.Program{Instance: "writer-1", NewAgent: func() (*agent.Agent, error) {
		return agent.New(agent.Config{Name: "writer", Description: "Writes.", Model: model, Tools: []tool.Tool{write}})
	}})
	m.Await("the agent is ready", func() bool { return len(idleInstances(t, m, "writer")) == 1 })
	req := textRequest("Write a report.")
	req.Target = "writer"
	events := runTurn(t, m, req)
	want := []*troupev1.ArtifactUpdate{
		{Name: "report.md", MediaType: "text/markdown", Size: 4, Data: []byte("one ")},
		{Name: "report.md", MediaType: "text/markdown", Size: 4 + 4<<10, Data: make([]byte, 4<<10), Append: true},
		{Name: "report.md", MediaType: "text/markdown", Size: 7 + 4<<10, Data: []byte("end"), Append: true, Complete: true, Version: 1},
	}
	requireUpdates(t, want, events)

	watch, err := m.WatchTrace(t.Context(), &troupev1.WatchTraceRequest{TraceId: events[0].GetTraceId()})
	require.NoError(t, err)
	var watched []*troupev1.Event
	for len(watched) == 0 || watched[len(watched)-1].GetTurnResult() == nil {
		resp, err := watch.Recv()
		require.NoError(t, err)
		watched = append(watched, resp.GetEvent())
	}
	requireUpdates(t, want, watched)

	stored, err := m.Sessions.ListArtifacts(t.Context(), &troupev1.ListArtifactsRequest{SessionId: req.GetSessionId()})
	require.NoError(t, err)
	require.Len(t, stored.GetArtifacts(), 1)
	require.EqualValues(t, 7+4<<10, stored.GetArtifacts()[0].GetSize())
}

// requireUpdates requires that the events have these updates of artifacts, in order.
func requireUpdates(t *testing.T, want []*troupev1.ArtifactUpdate, events []*troupev1.Event) {
	t.Helper()
	var got []*troupev1.ArtifactUpdate
	for _, e := range events {
		if u := e.GetArtifactUpdate(); u != nil {
			require.Positive(t, e.GetSequence(), "it is stored")
			got = append(got, u)
		}
	}
	require.Len(t, got, len(want))
	for i := range want {
		require.Equal(t, want[i].String(), got[i].String())
	}
}
