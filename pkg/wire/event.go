package wire

import (
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/troupe-dev/troupe/pkg/event"
	troupev1 "github.com/troupe-dev/troupe/pkg/gen/troupe/v1"
)

var toolStatuses = map[event.ToolStatus]troupev1.ToolStatus{
	event.ToolSuccess:  troupev1.ToolStatus_TOOL_STATUS_SUCCESS,
	event.ToolError:    troupev1.ToolStatus_TOOL_STATUS_ERROR,
	event.ToolNotFound: troupev1.ToolStatus_TOOL_STATUS_NOT_FOUND,
}

// EventToProto is what happened in a step, with the present time. The orchestrator fills
// in where on the trace it stands. An event of a type that it does not know gives nil.
func EventToProto(e event.Event) *troupev1.Event {
	out := &troupev1.Event{Time: timestamppb.Now()}
	switch e := e.(type) {
	case event.TextDelta:
		out.Payload = &troupev1.Event_TextDelta{TextDelta: &troupev1.TextDelta{Text: e.Text}}
	case event.ModelCall:
		out.Payload = &troupev1.Event_ModelCall{ModelCall: &troupev1.ModelCall{
			Model: e.Model, Iteration: int32(e.Iteration), ToolCalls: int32(e.ToolCalls),
			Usage: UsageToProto(e.Usage), Duration: durationpb.New(e.Duration),
		}}
	case event.ToolStarted:
		out.Payload = &troupev1.Event_ToolCallStarted{ToolCallStarted: &troupev1.ToolCallStarted{
			CallId: e.CallID, Tool: e.Tool, Arguments: e.Arguments,
		}}
	case event.ToolFinished:
		out.Payload = &troupev1.Event_ToolCallFinished{ToolCallFinished: &troupev1.ToolCallFinished{
			CallId: e.CallID, Tool: e.Tool, Status: toolStatuses[e.Status],
			Summary: e.Summary, Duration: durationpb.New(e.Duration),
		}}
	case event.Warning:
		out.Payload = &troupev1.Event_Warning{Warning: &troupev1.Warning{Reason: e.Reason, Message: e.Message}}
	default:
		return nil
	}
	return out
}
