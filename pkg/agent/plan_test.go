package agent_test

import (
	"context"
	"encoding/json"
	"fmt"
	"iter"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"

	"github.com/troupe-dev/troupe/pkg/agent"
	"github.com/troupe-dev/troupe/pkg/agent/flow"
	"github.com/troupe-dev/troupe/pkg/conversation"
	"github.com/troupe-dev/troupe/pkg/event"
	"github.com/troupe-dev/troupe/pkg/execution"
	"github.com/troupe-dev/troupe/pkg/failure"
	"github.com/troupe-dev/troupe/pkg/llm/scripted"
	"github.com/troupe-dev/troupe/pkg/tool"
)

// The model gets the task of the step as a separate message only if the task differs from the text of the user.
func TestAgent_ReadsItsTaskIfItDiffersFromTheGoal(t *testing.T) {
	prior := execution.Result{Step: 1, Agent: "search", Text: "found it", Observations: []string{"x"}}
	for name, c := range map[string]struct {
		asked execution.Assignment
		want  string
	}{
		"nothing":  {execution.Assignment{}, ""},
		"the goal": {execution.Assignment{Goal: "What?", Task: "What?", Priority: 9, Tags: []string{"a"}}, ""},
		"a task":   {execution.Assignment{Goal: "What?", Task: "Sum it up."}, "What you are asked to do:\n\nSum it up."},
		"a constraint": {
			execution.Assignment{Goal: "What?", Task: "What?", Constraints: []string{"no jargon", "short"}},
			"What you have to keep to:\n\n- no jargon\n- short",
		},
		"what to bring": {execution.Assignment{Goal: "What?", Task: "What?", ExpectedOutput: "One line."}, "What is expected of you:\n\nOne line."},
		"all": {
			execution.Assignment{Goal: "What?", Task: "Sum it up.", Constraints: []string{"short"}, ExpectedOutput: "One line."},
			"What you are asked to do:\n\nSum it up.\n\nWhat you have to keep to:\n\n- short\n\nWhat is expected of you:\n\nOne line.",
		},
	} {
		t.Run(name, func(t *testing.T) {
			model := scripted.New(scripted.Say("So."))
			step := questionStep("What?")
			step.Assignment, step.Prior = c.asked, []execution.Result{prior}
			_, _, err := execute(t.Context(), build(t, agent.Config{Model: model, Instructions: "Answer."}), step, discardEvents)
			require.NoError(t, err)
			found := conversation.Message{
				Role: conversation.RoleUser, Author: "search",
				Text: "What the steps before this one observed:\n\nx\n\nWhat search said:\n\nfound it",
			}
			want := []conversation.Message{conversation.User("What?"), found}
			prompt := "What?\n\n" + found.Text
			if c.want != "" {
				want = []conversation.Message{conversation.User("What?"), conversation.User(c.want), found}
				prompt = "What?\n\n" + c.want + "\n\n" + found.Text
			}
			require.Empty(t, cmp.Diff(want, model.Requests()[0].Messages))
			require.Equal(t, "Answer.", model.Requests()[0].System)
			require.Equal(t, prompt, agent.Invocation{Step: step}.Prompt())
		})
	}
}

// A step that may use only some of its agent's tools can still plan.
func TestAgent_PlansWithSomeOfItsTools(t *testing.T) {
	for name, c := range map[string]struct{ allowed, offered []string }{
		"some": {[]string{"lookup"}, []string{"lookup", agent.AddTask}},
		"none": {nil, []string{agent.AddTask}},
	} {
		model := scripted.New(addTasksReply("search: find it"), scripted.Say(""))
		a := build(t, agent.Config{Name: "planner", Model: model, Tools: []tool.Tool{lookup(t)}})
		step := plannedTasks("Do.", 3)
		step.Tools = &execution.Tools{Names: c.allowed}
		done, _, err := execute(t.Context(), a, step, discardEvents)
		require.NoError(t, err, name)
		require.Equal(t, []execution.PlannedTask{{Agent: "search", Text: "find it"}}, done.Tasks, name)
		var offered []string
		for _, s := range model.Requests()[0].Tools {
			offered = append(offered, s.Name)
		}
		require.Equal(t, c.offered, offered, name)
		require.Equal(t, c.allowed, step.Tools.Names, "the step is unchanged")
	}
}

func plannedTasks(history string, most int) execution.Step {
	step := questionStep(history)
	step.Plan = &execution.PlanRequest{Agents: []execution.PlanAgent{{Name: "search", Description: "Finds things."}, {Name: "calc"}}, Max: most}
	return step
}

func addTasksReply(tasks ...string) scripted.Reply {
	var r scripted.Reply
	for i, said := range tasks {
		name, text, _ := strings.Cut(said, ": ")
		arguments, _ := json.Marshal(map[string]string{"agent": name, "task": text})
		r.ToolCalls = append(r.ToolCalls, conversation.ToolCall{ID: string(rune('a' + i)), Name: agent.AddTask, Arguments: string(arguments)})
	}
	return r
}

// The model of a planning step gets a tool that adds tasks. The tool reports an invalid task to the model. The
// model need not answer with a text as well.
func TestAgent_PlansWithATool(t *testing.T) {
	model := scripted.New(addTasksReply("search: find it ", "boss: decide", "calc:  "), addTasksReply("calc: add it up", "calc: once more"), scripted.Say(""))
	a := build(t, agent.Config{Name: "planner", Model: model, Tools: []tool.Tool{lookup(t)}})
	var said []string
	result, messages, err := execute(t.Context(), a, plannedTasks("Do it.", 2), func(e event.Event) error {
		if done, ok := e.Payload.(event.ToolFinished); ok {
			said = append(said, done.Result)
		}
		return nil
	})
	require.NoError(t, err)
	require.Equal(t, []execution.PlannedTask{{Agent: "search", Text: "find it"}, {Agent: "calc", Text: "add it up"}}, result.Tasks)
	require.Empty(t, messages)
	require.Empty(t, result.Observations)
	require.Empty(t, result.ToolsCalled, "the tool is not the agent's")
	require.Equal(t, []string{
		"The task is given to search.", `Error: agent: there is no "boss"; use one of search, calc`, "Error: task: 0 bytes; use 1 to 4096, and not only white space",
		"The task is given to calc.", "Error: there are 2 tasks already, and no more are allowed",
	}, said)
	tools := model.Requests()[0].Tools
	require.Equal(t, agent.AddTask, tools[len(tools)-1].Name)
	require.Contains(t, tools[len(tools)-1].Description, "At most 2 tasks.")
	require.Contains(t, tools[len(tools)-1].Description, "- search: Finds things.\n- calc:")

	model = scripted.New(addTasksReply("search: one", "calc: two", "search: three"), scripted.Say("Planned."))
	result, _, err = execute(t.Context(), build(t, agent.Config{Model: model, Parallel: true}), plannedTasks("Do it.", 3), discardEvents)
	require.NoError(t, err)
	require.Equal(t, []execution.PlannedTask{{Agent: "search", Text: "one"}, {Agent: "calc", Text: "two"}, {Agent: "search", Text: "three"}}, result.Tasks)

	model = scripted.New(scripted.Say("Nothing to plan."))
	result, _, err = execute(t.Context(), build(t, agent.Config{Model: model}), questionStep("Do it."), discardEvents)
	require.NoError(t, err)
	require.Empty(t, result.Tasks)
	require.Empty(t, model.Requests()[0].Tools, "the step does not plan")
}

// journal is an in-memory journal of one step that all of its attempts share. Each record is durable at once.
type journal struct {
	mu                 sync.Mutex
	entries            map[string]execution.Entry
	conflictingRecords []string
}

func (j *journal) Replay(number int, phase execution.Phase) (execution.Entry, bool) {
	j.mu.Lock()
	defer j.mu.Unlock()
	e, ok := j.entries[fmt.Sprint(number, phase)]
	return e, ok
}

func (j *journal) Record(e execution.Entry) {
	j.mu.Lock()
	defer j.mu.Unlock()
	at := fmt.Sprint(e.Number, e.Phase)
	if before, ok := j.entries[at]; ok && cmp.Diff(before, e) != "" {
		j.conflictingRecords = append(j.conflictingRecords, cmp.Diff(before, e))
	}
	j.entries[at] = e
}

func (j *journal) Sync(context.Context) error { return nil }

// If the worker is lost during planning, the next attempt keeps the tasks that were already added.
func TestAgent_ContinuesThePlanOfALostAttempt(t *testing.T) {
	j := &journal{entries: map[string]execution.Entry{}}
	step := plannedTasks("Do it.", 2)
	step.Journal = j
	model := scripted.New(addTasksReply("search: find it"), scripted.Fail(failure.New(failure.SystemNetwork, "test", "gone")))
	_, _, err := execute(t.Context(), build(t, agent.Config{Model: model}), step, discardEvents)
	require.Error(t, err)
	for key, e := range j.entries {
		if e.Tool == "" && e.Mode != "" {
			delete(j.entries, key) // the worker was lost before it recorded that
		}
	}
	model = scripted.New(addTasksReply("calc: add it up", "calc: once more"), scripted.Say("Planned."))
	result, _, err := execute(t.Context(), build(t, agent.Config{Model: model}), step, discardEvents)
	require.NoError(t, err)
	require.Equal(t, []execution.PlannedTask{{Agent: "search", Text: "find it"}, {Agent: "calc", Text: "add it up"}}, result.Tasks)
	require.Empty(t, j.conflictingRecords)
}

func TestAgent_PlanningRejectsAToolNamedAddTask(t *testing.T) {
	own, err := tool.Func(agent.AddTask, "Something else.", func(context.Context, struct{}) (string, error) { return "", nil })
	require.NoError(t, err)
	a := build(t, agent.Config{Model: scripted.New(scripted.Say("Hi.")), Tools: []tool.Tool{own}})
	_, _, err = execute(t.Context(), a, plannedTasks("Do it.", 2), discardEvents)
	require.True(t, failure.Is(err, failure.AgentValidation), "%v", err)
	require.ErrorContains(t, err, "rename that")
	_, _, err = execute(t.Context(), a, questionStep("Do it."), discardEvents)
	require.NoError(t, err)
}

// An agent with a Run function can return tasks with its answer. In a sequence, the last child plans.
func TestAgent_AFunctionPlansWithItsAnswer(t *testing.T) {
	tasks := []execution.PlannedTask{{Agent: "search", Text: "find it"}}
	asked := 0
	planner := build(t, agent.Config{Name: "planner", Run: func(_ context.Context, inv agent.Invocation) iter.Seq2[event.Event, error] {
		return func(yield func(event.Event, error) bool) {
			asked = inv.Step.Plan.Max
			yield(event.Event{Payload: event.Answer{Reason: event.Natural, Tasks: tasks}}, nil)
		}
	}})
	result, _, err := execute(t.Context(), planner, plannedTasks("Do it.", 3), discardEvents)
	require.NoError(t, err)
	require.Equal(t, tasks, result.Tasks)
	require.Equal(t, 3, asked)

	before := scripted.New(scripted.Say("Let me think."))
	flow, err := flow.Sequence(agent.Config{Name: "team"}, build(t, agent.Config{Name: "thinker", Model: before}), planner)
	require.NoError(t, err)
	result, _, err = execute(t.Context(), flow, plannedTasks("Do it.", 3), discardEvents)
	require.NoError(t, err)
	require.Equal(t, tasks, result.Tasks)
	require.Empty(t, before.Requests()[0].Tools)
}
