package scenario

import (
	"context"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/testing/protocmp"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/troupe-dev/troupe/internal/wire"
	"github.com/troupe-dev/troupe/pkg/agent"
	"github.com/troupe-dev/troupe/pkg/agent/flow"
	"github.com/troupe-dev/troupe/pkg/client"
	"github.com/troupe-dev/troupe/pkg/conversation"
	"github.com/troupe-dev/troupe/pkg/execution"
	troupev1 "github.com/troupe-dev/troupe/pkg/gen/troupe/v1"
	"github.com/troupe-dev/troupe/pkg/hook"
	"github.com/troupe-dev/troupe/pkg/llm/scripted"
	"github.com/troupe-dev/troupe/pkg/tool"
	"github.com/troupe-dev/troupe/test/rig"
	"github.com/troupe-dev/troupe/test/rig/team"
)

// These tests run agents that call other agents, in a mesh.

// A flow loses its worker while a remote agent works for it. The next worker attaches to the running call and
// repeats no finished call.
func movedFlowRepeatsNoFinishedAgent(t *testing.T, s *gatedMesh) {
	const teams = 2
	for n := range teams {
		id := "team-" + strconv.Itoa(n+1)
		s.HostWorker(rig.Part(id), rig.Program{
			Instance: id, DrainTimeout: time.Second, Package: "./test/rig/teamworker",
			Env:      []string{"TEAM_GATE=" + s.gate.URL, "TEAM_ORCHESTRATOR=" + s.Conn.Target()},
			NewAgent: func() (*agent.Agent, error) { return team.New(client.New(s.Conn), s.gate.URL) },
		})
	}
	s.Await("both teams are ready", func() bool { return len(idleInstances(t, s.Mesh, team.Name)) == teams })

	req, key := requestAs("hold", "alice", "token-1")
	req.Target = team.Name
	wait := s.startTurn(t, req)
	s.gate.AwaitCall(t, key) // the slow agent is working
	lost := ""
	s.Await("a team works", func() bool {
		for _, in := range listInstances(t, s.Mesh, team.Name) {
			status, err := s.DescribeInstance(t.Context(), &troupev1.DescribeInstanceRequest{InstanceId: in.GetInstanceId()})
			if err == nil && status.GetStatus().GetState() == troupev1.InstanceState_INSTANCE_STATE_BUSY {
				lost = in.GetInstanceId()
			}
		}
		return lost != ""
	})
	s.Kill(rig.Part(lost))
	s.Await("the other one works", func() bool {
		left := idleInstances(t, s.Mesh, team.Name)
		if len(left) != 1 {
			return false
		}
		status, err := s.DescribeInstance(t.Context(), &troupev1.DescribeInstanceRequest{InstanceId: left[0]})
		return err == nil && status.GetStatus().GetState() == troupev1.InstanceState_INSTANCE_STATE_BUSY
	})
	s.gate.Open(key)
	events := wait()
	s.requireAnsweredOnce(t, req, events)
	require.Equal(t, "It says: The gate is open.", turnResult(events).GetText())
	require.Len(t, retractions(events), 1)
	require.Equal(t, lost, retractions(events)[0].GetInstanceId())

	require.Equal(t, []string{"model alice token-1", "tool alice token-1"}, s.gate.Callers(key), "the slow agent worked once, in the name of the turn")
	require.Equal(t, 1, s.gate.ModelCalls("opener-"+key), "what it said is in the journal")
	traces, err := s.ListTraces(t.Context(), &troupev1.ListTracesRequest{PageSize: 200})
	require.NoError(t, err)
	turns, used := map[string]int{}, map[string]*troupev1.BudgetUse{}
	for _, trace := range traces.GetTraces() {
		if strings.Contains(trace.GetText(), key) {
			turns[trace.GetTarget()]++
			used[trace.GetTarget()] = trace.GetResult().GetUsed()
			if trace.GetTarget() == "slow" {
				require.EqualValues(t, 1, trace.GetParent().GetDepth())
			}
		}
	}
	require.Equal(t, map[string]int{team.Name: 1, "slow": 1}, turns)
	require.EqualValues(t, 2, used["slow"].GetModelCalls())
	require.EqualValues(t, 4, used[team.Name].GetModelCalls(), "its own two, and the calls of the attached turn, once")
	require.EqualValues(t, 1, used[team.Name].GetToolCalls())
	require.EqualValues(t, 1, used[team.Name].GetFanOut())
	branches := map[string]bool{}
	for _, e := range events {
		branches[e.GetBranch()] = true
	}
	for _, branch := range []string{"team.opener", "team.slow", "team.closer"} {
		require.True(t, branches[branch], branch)
	}
	for n := range teams {
		if id := "team-" + strconv.Itoa(n+1); id != lost {
			s.Stop(rig.Part(id))
		}
	}
}

// idleInstances returns the instances of an agent that accept steps.
func idleInstances(t *testing.T, m *rig.Mesh, name string) (ids []string) {
	t.Helper()
	for _, in := range listInstances(t, m, name) {
		if in.GetState() == troupev1.InstanceState_INSTANCE_STATE_READY && !in.GetMissing() {
			ids = append(ids, in.GetInstanceId())
		}
	}
	return ids
}

// newEventfulAgent returns an agent that emits all kinds of events. It has handlers, state, and tools that succeed
// or fail, and it also calls a tool that does not exist. It is a sequence of two agents, one of which calls a
// third.
func newEventfulAgent() (*agent.Agent, error) {
	type city struct {
		Name string `json:"name"`
	}
	weather, err := tool.Func("weather", "Tells the weather.", func(ctx context.Context, in city) (string, error) {
		if in.Name == "Atlantis" {
			return "", context.DeadlineExceeded
		}
		return in.Name + ": sunny", hook.InTool(ctx).Memory().Set("weather", "sunny")
	})
	if err != nil {
		return nil, err
	}
	call := func(name, arguments string) scripted.Reply {
		return scripted.Reply{
			Deltas: []string{"Let me ", "see."}, ToolCalls: []conversation.ToolCall{{Name: name, Arguments: arguments}},
			Usage: execution.Usage{InputTokens: 10, OutputTokens: 2},
		}
	}
	aide, err := agent.New(agent.Config{Name: "aide", Model: scripted.New(scripted.Say("It is far."))})
	if err != nil {
		return nil, err
	}
	asks, err := flow.AsTool(aide, flow.AsToolConfig{})
	if err != nil {
		return nil, err
	}
	finder, err := agent.New(agent.Config{
		Name: "finder", Tools: []tool.Tool{weather, asks}, OutputKey: "finding",
		Model: scripted.New(
			call("weather", `{"name":"Oslo"}`), call("weather", `{"name":"Atlantis"}`), call("nothing", `{}`),
			call("aide", `{"request":"How far is it?"}`), scripted.Say("It is sunny."),
		),
		Handlers: []hook.Handler{
			hook.BeforeAgent(func(_ context.Context, turn *hook.Turn) (string, error) { return "", turn.Memory().Set("begun", true) }),
			hook.AfterTools(func(_ context.Context, round *hook.Round) error {
				round.Think("reflection", "Hm.")
				return nil
			}),
			hook.AfterAgent(func(context.Context, *hook.Turn) (string, error) { return "That is all.", nil }),
		},
	})
	if err != nil {
		return nil, err
	}
	writer, err := agent.New(agent.Config{
		Name: "writer", Instructions: "{finding} {weather} {begun} {nothing?}", MaxIterations: 1, Tools: []tool.Tool{weather},
		Model: scripted.New(call("weather", `{"name":"Rome"}`)),
	})
	if err != nil {
		return nil, err
	}
	return flow.Sequence(agent.Config{Name: "everything", Handlers: []hook.Handler{
		hook.OnComplete(func(_ context.Context, done *hook.Completion) error {
			done.Warn("COMPLETE", done.Result)
			return done.Memory().Set("user:done", true)
		}),
	}}, finder, writer)
}

// A local run of an agent emits the same events as a turn in the mesh.
func TestLocal_EmitsTheSameEventsAsTheMesh(t *testing.T) {
	t.Parallel()
	m := rig.StartInProcess(t, rig.Config{})
	m.HostWorker("everything", rig.Program{Instance: "everything-1", DrainTimeout: time.Second, NewAgent: newEventfulAgent})
	m.Await("the agent is ready", func() bool { return len(idleInstances(t, m, "everything")) == 1 })
	req := textRequest("What is it like?")
	req.Target, req.UserId = "everything", "alice"
	var inMesh []*troupev1.Event
	var answer string
	for _, e := range runTurn(t, m, req) {
		if e.GetTurnResult() != nil {
			answer = e.GetTurnResult().GetText()
		}
		if e.GetStep() == 1 && e.GetRoutingDecision() == nil && e.GetStepStarted() == nil && e.GetStepFinished() == nil {
			inMesh = append(inMesh, removePosition(e))
		}
	}

	a, err := newEventfulAgent()
	require.NoError(t, err)
	require.NoError(t, a.Start(t.Context()))
	defer func() { require.NoError(t, a.Close()) }()
	var alone []*troupev1.Event
	step := execution.Step{Number: 1, Turn: 1, Attempt: 1, History: []conversation.Message{conversation.User("What is it like?")}}
	for e, err := range a.Run(t.Context(), agent.Invocation{Step: step}) {
		require.NoError(t, err)
		if shown := wire.EventToProto(e); shown != nil {
			alone = append(alone, removePosition(shown))
		}
	}
	require.Greater(t, len(alone), 30)
	require.Empty(t, cmp.Diff(alone, inMesh, protocmp.Transform()))
	require.NotEmpty(t, answer)
}

// removePosition returns an event without its sequence and time.
func removePosition(e *troupev1.Event) *troupev1.Event {
	e = proto.CloneOf(e)
	e.RootTraceId = ""
	e.Sequence, e.TraceId, e.SessionId, e.Turn, e.Step, e.Attempt, e.Agent, e.InstanceId, e.Time, e.Stage = 0, "", "", 0, 0, 0, "", "", nil, 0
	if c := e.GetModelCall(); c != nil {
		c.Duration = durationpb.New(0)
	}
	if c := e.GetToolCallFinished(); c != nil {
		c.Duration = durationpb.New(0)
	}
	return e
}
