package wire

import (
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/troupe-dev/troupe/pkg/conversation"
	"github.com/troupe-dev/troupe/pkg/event"
	troupev1 "github.com/troupe-dev/troupe/pkg/gen/troupe/v1"
)

var statuses = enum[event.ToolStatus, troupev1.ToolStatus]{
	event.ToolSuccess:        troupev1.ToolStatus_TOOL_STATUS_SUCCESS,
	event.ToolError:          troupev1.ToolStatus_TOOL_STATUS_ERROR,
	event.ToolNotFound:       troupev1.ToolStatus_TOOL_STATUS_NOT_FOUND,
	event.ToolUnknownOutcome: troupev1.ToolStatus_TOOL_STATUS_UNKNOWN_OUTCOME,
}

// The limits of event.proto. What a model or an error says may be longer, and is cut here.
const (
	maxName      = 256
	maxDelta     = 256 << 10
	maxArguments = 64 << 10
	maxReason    = 64
	maxWarning   = 1024
)

// EventToProto is what happened in a step, with the present time, cut to the limits of the
// wire. The orchestrator fills in where on the trace it stands. An event of a type that it does not know gives nil.
func EventToProto(e event.Event) *troupev1.Event {
	out := &troupev1.Event{Time: timestamppb.Now()}
	switch e := e.(type) {
	case event.TextDelta:
		out.Payload = &troupev1.Event_TextDelta{TextDelta: &troupev1.TextDelta{Text: conversation.Cut(e.Text, maxDelta)}}
	case event.ModelCall:
		out.Payload = &troupev1.Event_ModelCall{ModelCall: &troupev1.ModelCall{
			Model: conversation.Cut(e.Model, maxName), Iteration: int32(e.Iteration), ToolCalls: int32(e.ToolCalls),
			Usage: UsageToProto(e.Usage), Duration: durationpb.New(e.Duration),
		}}
	case event.ToolStarted:
		out.Payload = &troupev1.Event_ToolCallStarted{ToolCallStarted: &troupev1.ToolCallStarted{
			CallId: conversation.Cut(e.CallID, maxName), Tool: conversation.Cut(e.Tool, maxName), Arguments: conversation.Cut(e.Arguments, maxArguments),
		}}
	case event.ToolFinished:
		out.Payload = &troupev1.Event_ToolCallFinished{ToolCallFinished: &troupev1.ToolCallFinished{
			CallId: conversation.Cut(e.CallID, maxName), Tool: conversation.Cut(e.Tool, maxName), Status: statuses.toProto(e.Status),
			Summary: conversation.Brief(e.Summary, event.MaxSummary), Duration: durationpb.New(e.Duration),
		}}
	case event.Warning:
		out.Payload = &troupev1.Event_Warning{Warning: &troupev1.Warning{
			Reason: conversation.Cut(e.Reason, maxReason), Message: conversation.Cut(e.Message, maxWarning),
		}}
	default:
		return nil
	}
	return out
}
