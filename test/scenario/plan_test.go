package scenario

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"

	"github.com/troupe-dev/troupe/pkg/agent"
	"github.com/troupe-dev/troupe/pkg/conversation"
	troupev1 "github.com/troupe-dev/troupe/pkg/gen/troupe/v1"
	"github.com/troupe-dev/troupe/pkg/llm/scripted"
	"github.com/troupe-dev/troupe/test/rig"
)

// The model of a planner adds tasks with its tool. Other agents then run one task each. The trace shows the state
// of the plan.
func TestPlan_InProcess(t *testing.T) {
	m := rig.StartInProcess(t, rig.Config{TestWorkflows: true})
	task := func(id, text string) conversation.ToolCall {
		return conversation.ToolCall{ID: id, Name: agent.AddTask, Arguments: `{"agent": "research", "task": "` + text + `"}`}
	}
	m.HostWorker("planner-1", rig.Program{Instance: "planner-1", DrainTimeout: time.Second, NewAgent: func() (*agent.Agent, error) {
		return agent.New(agent.Config{Name: "planner", Description: "Plans.", Model: scripted.New(
			scripted.Call(task("c1", "Who may write AGENT state?"), task("c2", "What is a commit with an old epoch?")), scripted.Say(""),
		)})
	}})
	m.AwaitReady()
	m.Await("the planner is ready", func() bool { return len(idleInstances(t, m, "planner")) == 1 })

	req := textRequest("Tell me about ownership.")
	req.Target = "planned"
	events := runTurn(t, m, req)
	require.Equal(t, troupev1.TurnOutcome_TURN_OUTCOME_COMPLETED, turnResult(events).GetOutcome(), "%v", turnResult(events))
	searched := map[int32]string{}
	for _, e := range events {
		if call := e.GetToolCallStarted(); call != nil && e.GetAgent() == "research" {
			searched[e.GetStep()] = call.GetArguments()
		}
	}
	require.Len(t, searched, 2)
	require.Contains(t, searched[2], "AGENT")
	require.Contains(t, searched[3], "commit")

	got, err := m.GetTrace(t.Context(), &troupev1.GetTraceRequest{TraceId: events[0].GetTraceId(), Plan: true})
	require.NoError(t, err)
	var lines [][]string
	for _, s := range got.GetTrace().GetPlan() {
		lines = append(lines, []string{s.GetStep(), s.GetAgent(), s.GetTask(), s.GetState().String()})
		times := []time.Time{s.GetCreated().AsTime(), s.GetRouted().AsTime(), s.GetExecuting().AsTime(), s.GetEnded().AsTime()}
		for i := range 3 {
			require.False(t, times[i+1].Before(times[i]), "%v", s)
		}
	}
	require.Empty(t, cmp.Diff([][]string{
		{"plan", "planner", "", "PLAN_STATE_COMPLETED"},
		{"plan[1]", "research", "Who may write AGENT state?", "PLAN_STATE_COMPLETED"},
		{"plan[2]", "research", "What is a commit with an old epoch?", "PLAN_STATE_COMPLETED"},
		{"sum", "synthesis", "", "PLAN_STATE_COMPLETED"},
	}, lines))
	plain, err := m.GetTrace(t.Context(), &troupev1.GetTraceRequest{TraceId: events[0].GetTraceId()})
	require.NoError(t, err)
	require.Empty(t, plain.GetTrace().GetPlan(), "no plan was requested")
}
