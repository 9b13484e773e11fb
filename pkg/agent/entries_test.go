package agent_test

import (
	"context"
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/stretchr/testify/require"

	"github.com/troupe-dev/troupe/pkg/agent"
	"github.com/troupe-dev/troupe/pkg/conversation"
	"github.com/troupe-dev/troupe/pkg/event"
	"github.com/troupe-dev/troupe/pkg/execution"
	"github.com/troupe-dev/troupe/pkg/failure"
	"github.com/troupe-dev/troupe/pkg/hook"
	"github.com/troupe-dev/troupe/pkg/llm/scripted"
)

// The trace of a run has the files of the user, a plan, the answer of the model, and the error of a run that failed.
//
// Req: CO-48
func TestRun_HasAllTypesOfTraceEntries(t *testing.T) {
	entriesOf := func(c agent.Config, step execution.Step) (entries []event.Event, failed error) {
		for e, err := range build(t, c).Run(t.Context(), agent.Invocation{Step: step}) {
			if err != nil {
				return entries, err
			}
			entries = append(entries, e)
		}
		return entries, nil
	}
	find := func(entries []event.Event, kind string) (found []event.Event) {
		for _, e := range entries {
			if e.Kind() == kind {
				found = append(found, e)
			}
		}
		return found
	}

	asked := conversation.User("What is on it?")
	asked.Attachments = []conversation.Attachment{{Name: "map.pdf", MediaType: "application/pdf", Size: 3, Version: 1, Data: []byte("pdf")}}
	step := questionStep("What is on it?")
	step.History = []conversation.Message{asked}
	entries, err := entriesOf(agent.Config{Model: scripted.New(scripted.Say("A hill."))}, step)
	require.NoError(t, err)
	require.Equal(t, []string{"user_input", "files_received"}, []string{entries[0].Kind(), entries[1].Kind()})
	files := asked.Attachments[0]
	files.Data = nil
	require.Equal(t, event.FilesReceived{Files: []conversation.Attachment{files}}, entries[1].Payload)
	require.Equal(t, "user", entries[1].Author)
	said := find(entries, "assistant")
	require.Len(t, said, 1)
	require.Empty(t, cmp.Diff(event.Answer{Text: "A hill.", Reason: event.Natural, Iterations: 1}, said[0].Payload))
	require.Empty(t, find(entries, "error"))
	require.Len(t, find(entries, "turn_result"), 1)

	entries, err = entriesOf(agent.Config{Name: "planner", Model: scripted.New(addTasksReply("search: find it"), scripted.Say(""))}, plannedTasks("Do.", 3))
	require.NoError(t, err)
	plan := find(entries, "plan")
	require.Len(t, plan, 1)
	require.Equal(t, event.PlanMade{Tasks: []execution.PlannedTask{{Agent: "search", Text: "find it"}}}, plan[0].Payload)

	for want, failed := range map[event.Error]error{
		{Type: "resource_api", Message: "The model is down."}:                             failure.New(failure.ResourceAPI, "test", "The model is down."),
		{Type: "*errors.errorString", Message: "the agent failed; its log has the error"}: errors.New("the password is 42"),
	} {
		entries, err = entriesOf(agent.Config{Model: scripted.New(scripted.Fail(failed))}, questionStep("Hello"))
		require.ErrorIs(t, err, failed)
		last := entries[len(entries)-2:]
		require.Equal(t, []string{"error", "turn_result"}, []string{last[0].Kind(), last[1].Kind()})
		require.Empty(t, cmp.Diff(want, last[0].Payload))
		require.Equal(t, last[0].Sequence+1, last[1].Sequence)
	}

	// Handlers see the entries of their turn.
	var seen []event.Event
	_, err = entriesOf(agent.Config{Model: scripted.New(scripted.Say("Hi.")), Handlers: []hook.Handler{hook.OnComplete(func(_ context.Context, done *hook.Completion) error {
		done.Think(event.Reflection, "Polite.")
		seen = done.Entries()
		return nil
	})}}, questionStep("Hello"))
	require.NoError(t, err)
	require.Empty(t, cmp.Diff(event.Thinking{Topic: event.Reflection, Text: "Polite."}, seen[len(seen)-1].Payload, cmpopts.EquateEmpty()))
	require.Len(t, find(seen, "assistant"), 1)
}
