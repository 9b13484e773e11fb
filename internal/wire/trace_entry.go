package wire

import (
	"encoding/json"
	"strings"

	"github.com/troupe-dev/troupe/internal/grpcfailure"
	"github.com/troupe-dev/troupe/pkg/event"
	"github.com/troupe-dev/troupe/pkg/execution"
	troupev1 "github.com/troupe-dev/troupe/pkg/gen/troupe/v1"
	"github.com/troupe-dev/troupe/pkg/ownership"
)

// TraceEntryFromProto converts a stored event of a turn to the trace entry that agents read (CO-68). It returns false for events
// that are no entries, such as the decisions of the orchestrator.
func TraceEntryFromProto(e *troupev1.Event) (event.Event, bool) {
	entry := event.Event{
		Invocation: e.GetTraceId(), Step: int(e.GetStep()), Sequence: int(e.GetSequence()), Time: e.GetTime().AsTime(),
		Author: e.GetAgent(), Branch: e.GetBranch(), Payload: StepPayloadFromProto(e),
	}
	if i := strings.LastIndexByte(entry.Branch, '.'); i >= 0 {
		entry.Author = entry.Branch[i+1:]
	}
	if done, ok := entry.Payload.(event.ToolFinished); ok {
		done.Result = done.Summary
		entry.Payload = done
	}
	switch p := e.GetPayload().(type) {
	case *troupev1.Event_TurnStarted:
		entry.Author, entry.Payload = "user", event.UserInput{Turn: int(e.GetTurn()), Prompt: p.TurnStarted.GetText()}
	case *troupev1.Event_ToolCallPending:
		entry.Payload = event.ToolPending{Pending: pendingFromProto(p.ToolCallPending.GetCall())}
	case *troupev1.Event_ArtifactUpdate: // without its content, which the store has
		u := p.ArtifactUpdate
		entry.Payload = event.ArtifactUpdate{
			Name: u.GetName(), MediaType: u.GetMediaType(), Version: int(u.GetVersion()), Size: u.GetSize(), Append: u.GetAppend(), Complete: u.GetComplete(),
		}
	case *troupev1.Event_OwnershipViolation:
		v := p.OwnershipViolation
		entry.Payload = event.OwnershipViolation{Key: v.GetKey(), Owner: ownership.Owner(v.GetOwner()), Actor: v.GetActor(), Operation: v.GetOperation()}
	case *troupev1.Event_TurnResult:
		entry.Author, entry.Payload = p.TurnResult.GetAgent(), resultEntry(int(e.GetTurn()), p.TurnResult)
	}
	return entry, entry.Payload != nil
}

// resultEntry returns the entry for the end of a turn.
func resultEntry(turn int, r *troupev1.TurnResult) event.TurnResult {
	out := event.TurnResult{
		Turn: turn, Reason: event.Natural, Duration: r.GetDuration().AsDuration(), Result: execution.Result{Agent: r.GetAgent()},
	}
	if r.GetUsage() != nil {
		used := UsageFromProto(r.GetUsage())
		out.Usage = &used
	}
	switch r.GetOutcome() {
	case troupev1.TurnOutcome_TURN_OUTCOME_INPUT_REQUIRED, troupev1.TurnOutcome_TURN_OUTCOME_AUTH_REQUIRED:
		out.Reason = event.InputRequired
	case troupev1.TurnOutcome_TURN_OUTCOME_FAILED, troupev1.TurnOutcome_TURN_OUTCOME_CANCELLED:
		out.Reason = event.Failed
		if failed := grpcfailure.FromProto(r.GetFailure()); failed != nil {
			out.SetError(failed)
		}
	default: // it has an answer
	}
	return out
}

// StepPayloadFromProto converts the payload of a stored event that an agent reported. It returns nil for all others. Text of
// results is their summary.
func StepPayloadFromProto(e *troupev1.Event) event.Payload {
	switch p := e.GetPayload().(type) {
	case *troupev1.Event_ModelCall:
		m := p.ModelCall
		return event.ModelCall{
			Model: m.GetModel(), Iteration: int(m.GetIteration()), ToolCalls: int(m.GetToolCalls()),
			Usage: UsageFromProto(m.GetUsage()), Duration: m.GetDuration().AsDuration(), Finish: finishReasons.FromProto(m.GetFinish()),
		}
	case *troupev1.Event_ToolCallStarted:
		return event.ToolStarted{CallID: p.ToolCallStarted.GetCallId(), Tool: p.ToolCallStarted.GetTool(), Arguments: p.ToolCallStarted.GetArguments()}
	case *troupev1.Event_ToolCallFinished:
		f := p.ToolCallFinished
		return event.ToolFinished{
			CallID: f.GetCallId(), Tool: f.GetTool(), Summary: f.GetSummary(), Duration: f.GetDuration().AsDuration(),
			Status: toolStatuses.FromProto(f.GetStatus()),
		}
	case *troupev1.Event_SubtaskStarted:
		s := p.SubtaskStarted
		return event.SubtaskStarted{
			Target: s.GetTarget(), Session: s.GetSessionId(), Request: s.GetRequestId(), Trace: s.GetTraceId(), Turn: s.GetTurnId(), CallID: s.GetCallId(),
		}
	case *troupev1.Event_AgentMessage:
		return event.Message{Text: p.AgentMessage.GetText()}
	case *troupev1.Event_Thinking:
		return event.Thinking{Topic: thinkingTopics.FromProto(p.Thinking.GetTopic()), Text: p.Thinking.GetText()}
	case *troupev1.Event_Custom:
		return event.Custom{Name: p.Custom.GetName(), Data: json.RawMessage(p.Custom.GetData())}
	case *troupev1.Event_Warning:
		return event.Warning{Reason: p.Warning.GetReason(), Message: p.Warning.GetMessage()}
	default:
		return nil
	}
}
