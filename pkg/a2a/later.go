package a2a

import (
	troupev1 "github.com/troupe-dev/troupe/pkg/gen/troupe/v1"
)

// What follows are the places for kinds of LP-29 of which the mesh's events do not speak yet:
// each is one function.

// finish says why the model stopped: stop, length, tool_calls or content_filter. Until
// ModelCall says so itself it is one of the two that can be told apart.
func finish(m *troupev1.ModelCall) string {
	if m.GetToolCalls() > 0 {
		return "tool_calls"
	}
	return "stop"
}

// more is for payloads that translate does not know: a tool that reports its progress is
// tool-progress. It returns what is told of one that has no word of its own.
func more(_ *troupev1.Event, _ func(string, facts)) facts { return facts{} }

// subtask is for a call that starts a turn of another agent: subtask-created, with the ids of
// the child, and task-status waiting-subtask.
func subtask(_ *troupev1.ToolCallStarted, _ func(string, facts)) {}

// authReceived is for answers that bring an authorization: auth-completed.
func authReceived(_ *troupev1.TurnStarted, _ func(string, facts)) {}

// parent is the task below which a turn runs, as the turn itself says; empty: it does not say.
func parent(_ *troupev1.TurnStarted) string { return "" }

// refer has a turn run below the task to which its message refers.
func refer(_ *troupev1.OrchestrateRequest, _ string) {}
