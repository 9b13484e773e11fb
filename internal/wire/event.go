package wire

import (
	"maps"
	"slices"

	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/troupe-dev/troupe/internal/wire/convert"
	"github.com/troupe-dev/troupe/pkg/conversation"
	"github.com/troupe-dev/troupe/pkg/event"
	troupev1 "github.com/troupe-dev/troupe/pkg/gen/troupe/v1"
)

var toolStatuses = convert.Enum[event.ToolStatus, troupev1.ToolStatus]{
	event.ToolSuccess:        troupev1.ToolStatus_TOOL_STATUS_SUCCESS,
	event.ToolError:          troupev1.ToolStatus_TOOL_STATUS_ERROR,
	event.ToolNotFound:       troupev1.ToolStatus_TOOL_STATUS_NOT_FOUND,
	event.ToolUnknownOutcome: troupev1.ToolStatus_TOOL_STATUS_UNKNOWN_OUTCOME,
	event.ToolInterrupted:    troupev1.ToolStatus_TOOL_STATUS_INTERRUPTED,
	event.ToolAsked:          troupev1.ToolStatus_TOOL_STATUS_INPUT_REQUIRED,
}

var finishReasons = convert.Enum[event.Finish, troupev1.FinishReason]{
	event.FinishStop:   troupev1.FinishReason_FINISH_REASON_STOP,
	event.FinishLength: troupev1.FinishReason_FINISH_REASON_LENGTH,
	event.FinishCalls:  troupev1.FinishReason_FINISH_REASON_TOOL_CALLS,
	event.FinishFilter: troupev1.FinishReason_FINISH_REASON_CONTENT_FILTER,
	event.FinishOther:  troupev1.FinishReason_FINISH_REASON_OTHER,
}

var thinkingTopics = convert.Enum[event.Topic, troupev1.Topic]{
	event.Plan:       troupev1.Topic_TOPIC_PLAN,
	event.Reflection: troupev1.Topic_TOPIC_REFLECTION,
	event.Reasoning:  troupev1.Topic_TOPIC_REASONING,
}

// These are the limits of event.proto. Longer texts of models and errors are cut to them.
const (
	maxNameBytes      = 256
	maxDeltaBytes     = 256 << 10
	maxArgumentsBytes = 64 << 10
	maxReasonBytes    = 64
	maxWarningBytes   = 1024
	maxThoughtBytes   = 16 << 10
	maxBranchBytes    = 1024
	maxMediaTypeBytes = 128
	maxChanges        = 256 // limit of keys and of artifacts
	maxKeyBytes       = 128
	maxOwnerBytes     = 32
	maxOperationBytes = 128
)

// EventToProto converts an event of a step and cuts its texts to the limits of the wire. The orchestrator later
// adds the position on the trace. EventToProto returns nil for replayed events and for events that clients do not
// get.
func EventToProto(happened event.Event) *troupev1.Event {
	if isReplayed(happened.Payload) {
		return nil
	}
	out := &troupev1.Event{Time: timestamppb.New(happened.Time), Branch: conversation.Truncate(happened.Branch, maxBranchBytes)}
	switch e := happened.Payload.(type) {
	case event.TextDelta:
		out.Payload = &troupev1.Event_TextDelta{TextDelta: &troupev1.TextDelta{Text: conversation.Truncate(e.Text, maxDeltaBytes)}}
	case event.ModelCall:
		out.Payload = &troupev1.Event_ModelCall{ModelCall: &troupev1.ModelCall{
			Model: conversation.Truncate(e.Model, maxNameBytes), Iteration: int32(e.Iteration), ToolCalls: int32(e.ToolCalls),
			Usage: UsageToProto(e.Usage), Duration: durationpb.New(e.Duration), Finish: finishReasons.ToProto(e.Finish),
		}}
	case event.ToolStarted:
		out.Payload = &troupev1.Event_ToolCallStarted{ToolCallStarted: &troupev1.ToolCallStarted{
			CallId: conversation.Truncate(e.CallID, maxNameBytes), Tool: conversation.Truncate(e.Tool, maxNameBytes), Arguments: conversation.Truncate(e.Arguments,
				maxArgumentsBytes),
		}}
	case event.ToolFinished:
		out.Payload = &troupev1.Event_ToolCallFinished{ToolCallFinished: &troupev1.ToolCallFinished{
			CallId: conversation.Truncate(e.CallID, maxNameBytes), Tool: conversation.Truncate(e.Tool, maxNameBytes), Status: toolStatuses.ToProto(e.Status),
			Summary: conversation.Excerpt(e.Summary, event.MaxSummaryChars), Duration: durationpb.New(e.Duration),
			Attachments: convert.All(e.Attachments, BlobToProto), Structured: string(e.Structured),
		}}
	case event.ToolProgress:
		out.Payload = &troupev1.Event_ToolProgress{ToolProgress: &troupev1.ToolProgress{
			CallId: conversation.Truncate(e.CallID, maxNameBytes), Tool: conversation.Truncate(e.Tool, maxNameBytes),
			Message: conversation.Excerpt(e.Message, event.MaxSummaryChars), Fraction: e.Fraction,
		}}
	case event.SubtaskStarted:
		out.Payload = &troupev1.Event_SubtaskStarted{SubtaskStarted: &troupev1.SubtaskStarted{
			Target: e.Target, SessionId: e.Session, RequestId: e.Request, TraceId: e.Trace, TurnId: e.Turn, CallId: conversation.Truncate(e.CallID, maxNameBytes),
		}}
	case event.ArtifactUpdate:
		out.Payload = &troupev1.Event_ArtifactUpdate{ArtifactUpdate: &troupev1.ArtifactUpdate{
			Name: e.Name, MediaType: conversation.Truncate(e.MediaType, maxMediaTypeBytes), Version: int32(e.Version), Size: e.Size, Data: e.Data,
			Append: e.Append, Complete: e.Complete,
		}}
	case event.ToolPending:
		out.Payload = &troupev1.Event_ToolCallPending{ToolCallPending: &troupev1.ToolCallPending{Call: pendingToProto(e.Pending)}}
	case event.Warning:
		out.Payload = &troupev1.Event_Warning{Warning: &troupev1.Warning{
			Reason: conversation.Truncate(e.Reason, maxReasonBytes), Message: conversation.Truncate(e.Message, maxWarningBytes),
		}}
	case event.OwnershipViolation:
		out.Payload = &troupev1.Event_OwnershipViolation{OwnershipViolation: ViolationToProto(e)}
	case event.Message:
		out.Payload = &troupev1.Event_AgentMessage{AgentMessage: agentMessageToProto(e)}
	case event.Thinking:
		out.Payload = &troupev1.Event_Thinking{Thinking: &troupev1.Thinking{
			Topic: thinkingTopics.ToProto(e.Topic), Text: conversation.Truncate(e.Text, maxThoughtBytes),
		}}
	case event.Custom:
		out.Payload = &troupev1.Event_Custom{Custom: &troupev1.CustomEvent{Name: e.Name, Data: string(e.Data)}}
	default:
		return nil
	}
	return out
}

// isReplayed reports whether an earlier attempt has sent the event.
func isReplayed(p event.Payload) bool {
	switch p := p.(type) {
	case event.ModelCall:
		return p.Replayed
	case event.ToolFinished:
		return p.Replayed
	default:
		return false
	}
}

// ViolationToProto converts a violation and cuts its texts to the limits of the wire.
func ViolationToProto(v event.OwnershipViolation) *troupev1.OwnershipViolation {
	return &troupev1.OwnershipViolation{
		Key: conversation.Truncate(v.Key, maxKeyBytes), Owner: conversation.Truncate(string(v.Owner), maxOwnerBytes),
		Actor: conversation.Truncate(v.Actor, maxNameBytes), Operation: conversation.Truncate(v.Operation, maxOperationBytes),
	}
}

// agentMessageToProto converts a message of an agent: its text, the keys of the changed state, and the versions of
// the written artifacts. The values stay in the session.
func agentMessageToProto(m event.Message) *troupev1.AgentMessage {
	out := &troupev1.AgentMessage{Text: conversation.Truncate(m.Text, maxDeltaBytes)}
	for _, key := range slices.Sorted(maps.Keys(m.State)) {
		if len(out.StateKeys) < maxChanges {
			out.StateKeys = append(out.StateKeys, conversation.Truncate(key, maxKeyBytes))
		}
	}
	for name, version := range m.Artifacts {
		if out.Artifacts == nil {
			out.Artifacts = map[string]int32{}
		}
		if len(out.Artifacts) < maxChanges {
			out.Artifacts[conversation.Truncate(name, maxNameBytes)] = int32(version)
		}
	}
	return out
}
