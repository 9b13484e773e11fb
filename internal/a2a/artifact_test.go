package a2a

import (
	"testing"

	"github.com/a2aproject/a2a-go/v2/a2a"
	"github.com/stretchr/testify/require"

	troupev1 "github.com/troupe-dev/troupe/pkg/gen/troupe/v1"
)

// An artifact that an agent writes reaches A2A clients in chunks: the first begins it, later ones append, and the last one
// completes it. A chunk without bytes names the artifact instead.
//
// Req: LP-44
func TestTaskStream_ShowsArtifactsThatGrow(t *testing.T) {
	var script eventScript
	add := func(u *troupev1.ArtifactUpdate) {
		script.addEvent(1, "", &troupev1.Event{Payload: &troupev1.Event_ArtifactUpdate{ArtifactUpdate: u}})
	}
	add(&troupev1.ArtifactUpdate{Name: "a.md", MediaType: "text/markdown", Size: 3, Data: []byte("one")})
	add(&troupev1.ArtifactUpdate{Name: "a.md", MediaType: "text/markdown", Size: 4, Data: []byte("\xff"), Append: true})
	add(&troupev1.ArtifactUpdate{Name: "a.md", MediaType: "text/markdown", Size: 5, Data: []byte("!"), Append: true, Complete: true, Version: 2})
	add(&troupev1.ArtifactUpdate{Name: "b.png", MediaType: "image/png", Size: 9, Complete: true, Version: 1})

	stream := newTaskStream(a2a.TaskInfo{TaskID: "task", ContextID: "context"}, nil)
	var chunks []*a2a.TaskArtifactUpdateEvent
	for _, e := range script {
		converted := stream.convert(e)
		require.Len(t, converted, 1)
		chunk, ok := converted[0].(*a2a.TaskArtifactUpdateEvent)
		require.True(t, ok)
		chunks = append(chunks, chunk)
		require.Equal(t, "file-write", chunk.Meta()[ExtensionURI].(EventMetadata).Events[0].Kind)
	}
	type sent struct {
		id               a2a.ArtifactID
		append, complete bool
		content          any
		version          any
	}
	var got []sent
	for _, c := range chunks {
		require.Len(t, c.Artifact.Parts, 1)
		require.Equal(t, c.Artifact.Metadata["mediaType"], c.Artifact.Parts[0].MediaType)
		got = append(got, sent{c.Artifact.ID, c.Append, c.LastChunk, c.Artifact.Parts[0].Content, c.Artifact.Metadata["version"]})
	}
	require.Equal(t, []sent{
		{"artifact/a.md", false, false, a2a.Text("one"), nil},
		{"artifact/a.md", true, false, a2a.Raw("\xff"), nil},
		{"artifact/a.md", true, true, a2a.Text("!"), int32(2)},
		{"artifact/b.png", false, true, a2a.Data{Value: map[string]any{"name": "b.png", "version": int32(1), "size": int64(9)}}, int32(1)},
	}, got)
}
