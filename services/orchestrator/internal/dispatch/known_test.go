package dispatch

import (
	"bytes"
	"errors"
	"testing"

	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"

	troupev1 "github.com/troupe-dev/troupe/pkg/gen/troupe/v1"
)

// hidden is a field that no message has.
func hidden(size int) []byte {
	return protowire.AppendBytes(protowire.AppendTag(nil, 15000, protowire.BytesType), bytes.Repeat([]byte("x"), size))
}

// delta is an event of a worker, with hidden fields wherever they may be.
func delta(text string, hides int) *troupev1.ExecuteStepResponse {
	d := &troupev1.TextDelta{Text: text}
	e := &troupev1.Event{Time: timestamppb.Now(), Payload: &troupev1.Event_TextDelta{TextDelta: d}}
	item := &troupev1.ExecuteStepResponse{Item: &troupev1.ExecuteStepResponse_Event{Event: e}}
	if hides > 0 {
		for _, m := range []proto.Message{d, e, e.GetTime(), item} {
			m.ProtoReflect().SetUnknown(hidden(hides))
		}
	}
	return item
}

// What a worker hides in its events and its result, in fields that nobody here knows, is not kept: no
// rule bounds it.
func TestDispatcher_DropsWhatItDoesNotKnow(t *testing.T) {
	_, address := serve(t, func(s troupev1.AgentService_ExecuteStepServer) error {
		r := &troupev1.StepResult{Step: 1, Agent: "a", Text: "done", Usage: &troupev1.Usage{InputTokens: 7}}
		r.ProtoReflect().SetUnknown(hidden(1 << 10))
		r.GetUsage().ProtoReflect().SetUnknown(hidden(1 << 10))
		return errors.Join(s.SendHeader(nil), s.Send(delta("hello", 1<<10)),
			s.Send(&troupev1.ExecuteStepResponse{Item: &troupev1.ExecuteStepResponse_Result{Result: r}}))
	})
	r := newRig(t, patience, instance("1", address, 4))
	var got *troupev1.Event
	h := new(heard).handler()
	h.Event = func(e *troupev1.Event) error { got = e; return nil }
	result, err := r.Execute(t.Context(), request(), nil, h)
	require.NoError(t, err)
	require.Equal(t, "hello", got.GetTextDelta().GetText())
	require.Less(t, proto.Size(got), 100)
	require.EqualValues(t, 7, result.GetUsage().GetInputTokens())
	require.Less(t, proto.Size(result), 100)
}
