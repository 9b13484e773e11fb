package wire

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/troupe-dev/troupe/pkg/event"
)

// An entry of an earlier turn says which artifact was written, without its content.
//
// Req: CO-68, LP-44
func TestTraceEntry_OfAnArtifactHasNoContent(t *testing.T) {
	written := event.ArtifactUpdate{Name: "a.md", MediaType: "text/markdown", Version: 2, Size: 3, Data: []byte("one"), Append: true, Complete: true}
	entry, ok := TraceEntryFromProto(EventToProto(event.Event{Payload: written}))
	require.True(t, ok)
	written.Data = nil
	require.Equal(t, written, entry.Payload)
}
