package trace

import (
	"strings"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/encoding/protowire"

	"github.com/troupe-dev/troupe/pkg/failure"
	troupev1 "github.com/troupe-dev/troupe/pkg/gen/troupe/v1"
)

// Ephemeral events of a worker cannot exhaust the memory: the limit counts complete events and not only their
// text. Appending and storing durable events still works after the limit is reached.
func TestLog_LimitsTheSizeOfEphemeralEvents(t *testing.T) {
	for name, c := range map[string]struct {
		event func() *troupev1.Event
		most  int // of them that are kept
	}{
		"no text to speak of": {func() *troupev1.Event { return textDelta("x") }, maxEphemeralBytes / eventOverheadBytes},
		"a long branch": {func() *troupev1.Event {
			e := textDelta("x")
			e.Branch = strings.Repeat("b", 1024)
			return e
		}, maxEphemeralBytes / (eventOverheadBytes + 1024)},
		"an unknown field": {func() *troupev1.Event {
			e := textDelta("x")
			e.GetTextDelta().ProtoReflect().SetUnknown(protowire.AppendBytes(protowire.AppendTag(nil, 15000, protowire.BytesType), make([]byte, 1<<20)))
			return e
		}, maxEphemeralBytes >> 20},
		"progress": {func() *troupev1.Event {
			return &troupev1.Event{Payload: &troupev1.Event_ToolProgress{ToolProgress: &troupev1.ToolProgress{Message: "at it"}}}
		}, maxEphemeralBytes / eventOverheadBytes},
	} {
		t.Run(name, func(t *testing.T) {
			traces, l := openTrace(t, &memoryStore{})
			for range c.most + 10 {
				require.NoError(t, l.Append(t.Context(), c.event()))
			}
			kept := len(l.Events())
			require.LessOrEqual(t, kept, c.most)
			require.Greater(t, kept, c.most/3, "and no less than there is room for")
			require.NoError(t, l.Append(t.Context(), warningEvent()))
			require.NoError(t, traces.Close(t.Context(), l, lastEvent()))
			require.Len(t, l.Events(), kept+2)
		})
	}
}

func TestLog_LimitsBytes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		traces, l := openTrace(t, &memoryStore{})
		var err error
		for n := 0; err == nil && n < MaxEvents; n++ {
			e := warningEvent()
			e.GetWarning().Message = strings.Repeat("x", 1<<20)
			err = l.Append(t.Context(), e)
		}
		require.True(t, failure.Is(err, failure.ResourceQuota))
		require.NoError(t, traces.Close(t.Context(), l, lastEvent()))
	})
}
