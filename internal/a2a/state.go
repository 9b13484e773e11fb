package a2a

import (
	"time"

	"github.com/a2aproject/a2a-go/v2/a2a"

	troupev1 "github.com/troupe-dev/troupe/pkg/gen/troupe/v1"
)

// stateFromResult returns the state of a task whose turn ended with r. A failure takes precedence over a question,
// and a question over an answer (AD-33).
func stateFromResult(r *troupev1.TurnResult) a2a.TaskState {
	switch outcome := r.GetOutcome(); {
	case outcome == troupev1.TurnOutcome_TURN_OUTCOME_CANCELLED:
		return a2a.TaskStateCanceled
	case outcome == troupev1.TurnOutcome_TURN_OUTCOME_FAILED, r.GetFailure() != nil:
		return a2a.TaskStateFailed
	case outcome == troupev1.TurnOutcome_TURN_OUTCOME_AUTH_REQUIRED:
		return a2a.TaskStateAuthRequired
	case outcome == troupev1.TurnOutcome_TURN_OUTCOME_INPUT_REQUIRED, len(r.GetPending()) > 0:
		return a2a.TaskStateInputRequired
	case outcome == troupev1.TurnOutcome_TURN_OUTCOME_COMPLETED:
		return a2a.TaskStateCompleted
	default:
		return a2a.TaskStateWorking
	}
}

// stateNames are the LP-29 names of task states.
var stateNames = map[a2a.TaskState]string{
	a2a.TaskStateWorking:       "working",
	a2a.TaskStateInputRequired: "waiting-input",
	a2a.TaskStateAuthRequired:  "waiting-auth",
	a2a.TaskStateCompleted:     "completed",
	a2a.TaskStateFailed:        "failed",
	a2a.TaskStateCanceled:      "canceled",
}

// askKinds are the LP-29 item kinds for the two states in which a task waits for its client.
var askKinds = map[a2a.TaskState]string{
	a2a.TaskStateInputRequired: "input-required",
	a2a.TaskStateAuthRequired:  "auth-required",
}

// statusFromResult returns the state of a task with its details. These are a question and the pending calls as a
// data part, or the reason why there is no answer. The answer itself is an artifact of the task.
func statusFromResult(task a2a.TaskInfo, r *troupev1.TurnResult, at time.Time) a2a.TaskStatus {
	s := a2a.TaskStatus{State: stateFromResult(r), Timestamp: &at}
	var parts []*a2a.Part
	if text := r.GetFailure().GetMessage(); text != "" {
		parts = append(parts, a2a.NewTextPart(text))
	}
	if askKinds[s.State] != "" {
		if r.GetText() != "" {
			parts = append(parts, a2a.NewTextPart(r.GetText()))
		}
		if len(r.GetPending()) > 0 {
			parts = append(parts, a2a.NewDataPart(itemData{"pending": pendingCallsData(r.GetPending())}))
		}
	}
	if len(parts) > 0 {
		s.Message = a2a.NewMessageForTask(a2a.MessageRoleAgent, task, parts...)
	}
	return s
}
