package dispatch

import (
	"bytes"
	"errors"
	"math"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/troupe-dev/troupe/pkg/failure"
	troupev1 "github.com/troupe-dev/troupe/pkg/gen/troupe/v1"
)

// unknownField returns the encoding of a field that no message type declares.
func unknownField(size int) []byte {
	return protowire.AppendBytes(protowire.AppendTag(nil, 15000, protowire.BytesType), bytes.Repeat([]byte("x"), size))
}

// deltaWithUnknownFields returns an event of a worker that has unknown fields at every level.
func deltaWithUnknownFields(text string, hides int) *troupev1.ExecuteStepResponse {
	d := &troupev1.TextDelta{Text: text}
	e := &troupev1.Event{Time: timestamppb.Now(), Payload: &troupev1.Event_TextDelta{TextDelta: d}}
	item := &troupev1.ExecuteStepResponse{Item: &troupev1.ExecuteStepResponse_Event{Event: e}}
	if hides > 0 {
		for _, m := range []proto.Message{d, e, e.GetTime(), item} {
			m.ProtoReflect().SetUnknown(unknownField(hides))
		}
	}
	return item
}

// Unknown fields in the events and the result of a worker are dropped, because no rule limits their size.
func TestDispatcher_DropsUnknownFieldsOfWorkers(t *testing.T) {
	_, address := serveAgent(t, func(s troupev1.AgentService_ExecuteStepServer) error {
		r := &troupev1.StepResult{Step: 1, Agent: "a", Text: "done", Usage: &troupev1.Usage{InputTokens: 7}}
		r.ProtoReflect().SetUnknown(unknownField(1 << 10))
		r.GetUsage().ProtoReflect().SetUnknown(unknownField(1 << 10))
		return errors.Join(s.SendHeader(nil), s.Send(deltaWithUnknownFields("hello", 1<<10)),
			s.Send(&troupev1.ExecuteStepResponse{Item: &troupev1.ExecuteStepResponse_Result{Result: r}}))
	})
	r := newDispatcherFixture(t, testTimeout, instance("1", address, 4))
	var got *troupev1.Event
	h := new(callRecorder).handler()
	h.OnEvent = func(e *troupev1.Event) error { got = e; return nil }
	result, err := r.Execute(t.Context(), stepRequest(), nil, h)
	require.NoError(t, err)
	require.Equal(t, "hello", got.GetTextDelta().GetText())
	require.Less(t, proto.Size(got), 100)
	require.EqualValues(t, 7, result.GetUsage().GetInputTokens())
	require.Less(t, proto.Size(result), 100)
}

// A worker's failure message that exceeds the limits is truncated before it becomes the failure of the step. It is
// stored in lists and sent to clients.
func TestDispatcher_TruncatesLongFailures(t *testing.T) {
	_, address := serveAgent(t, func(s troupev1.AgentService_ExecuteStepServer) error {
		why := &troupev1.Failure{
			Mode: troupev1.FailureMode_FAILURE_MODE_RESOURCE_TOOL, Op: "tool", Message: strings.Repeat("m", 1<<20),
			Facts: map[string]string{"tool": "fetch", "page": strings.Repeat("x", 10<<20), strings.Repeat("k", 1<<20): "x"},
		}
		return errors.Join(s.SendHeader(nil), s.Send(&troupev1.ExecuteStepResponse{Item: &troupev1.ExecuteStepResponse_Result{
			Result: &troupev1.StepResult{Step: 1, Agent: "a", Failure: why},
		}}))
	})
	r := newDispatcherFixture(t, testTimeout, instance("1", address, 4))
	result, err := r.Execute(t.Context(), stepRequest(), nil, new(callRecorder).handler())
	require.NoError(t, err)
	require.Equal(t, troupev1.FailureMode_FAILURE_MODE_RESOURCE_TOOL, result.GetFailure().GetMode())
	require.Equal(t, "fetch", result.GetFailure().GetFacts()["tool"])
	require.Len(t, result.GetFailure().GetFacts(), 2)
	require.Less(t, proto.Size(result), 16<<10)
}

// Negative or overflowing usage numbers violate the contract, both in events and in results.
func TestDispatcher_RejectsInvalidUsage(t *testing.T) {
	for name, item := range map[string]*troupev1.ExecuteStepResponse{
		"of a step": {Item: &troupev1.ExecuteStepResponse_Result{Result: &troupev1.StepResult{
			Step: 1, Agent: "a", Text: "done", Usage: &troupev1.Usage{InputTokens: -1},
		}}},
		"of a budget": {Item: &troupev1.ExecuteStepResponse_Result{Result: &troupev1.StepResult{
			Step: 1, Agent: "a", Text: "done", Used: &troupev1.BudgetUse{Tokens: math.MaxInt64},
		}}},
		"of a model": {Item: &troupev1.ExecuteStepResponse_Event{Event: &troupev1.Event{
			Payload: &troupev1.Event_ModelCall{ModelCall: &troupev1.ModelCall{Usage: &troupev1.Usage{CostMicroUsd: -1 << 40}}},
		}}},
	} {
		t.Run(name, func(t *testing.T) {
			_, address := serveAgent(t, func(s troupev1.AgentService_ExecuteStepServer) error {
				return errors.Join(s.SendHeader(nil), s.Send(item))
			})
			r := newDispatcherFixture(t, testTimeout, instance("1", address, 4))
			_, err := r.Execute(t.Context(), stepRequest(), nil, new(callRecorder).handler())
			lost, ok := errors.AsType[*LostError](err)
			require.True(t, ok, "%v", err)
			require.True(t, lost.ViolatesContract)
			require.Equal(t, failure.AgentContract, lost.Failure.Mode)
		})
	}
}
