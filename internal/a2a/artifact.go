package a2a

import (
	"strings"
	"unicode/utf8"

	"github.com/a2aproject/a2a-go/v2/a2a"

	troupev1 "github.com/troupe-dev/troupe/pkg/gen/troupe/v1"
)

// artifactIDPrefix begins the ids of the artifacts that agents write, so that none is the answer's.
const artifactIDPrefix = "artifact/"

// newArtifactChunk converts an update of an artifact that an agent writes (LP-44). The chunk has the bytes that were
// added, as text if they are. If the update has none, the chunk names the artifact, which the client loads from the mesh.
func newArtifactChunk(task a2a.TaskInfo, u *troupev1.ArtifactUpdate) *a2a.TaskArtifactUpdateEvent {
	var part *a2a.Part
	switch text := strings.HasPrefix(u.GetMediaType(), "text/") && utf8.Valid(u.GetData()); {
	case u.Data == nil:
		part = a2a.NewDataPart(map[string]any{"name": u.GetName(), "version": u.GetVersion(), "size": u.GetSize()})
	case text:
		part = a2a.NewTextPart(string(u.GetData()))
	default:
		part = a2a.NewRawPart(u.GetData())
	}
	part.MediaType = u.GetMediaType()
	c := a2a.NewArtifactUpdateEvent(task, a2a.ArtifactID(artifactIDPrefix+u.GetName()), part)
	c.Append, c.LastChunk, c.Artifact.Name = u.GetAppend(), u.GetComplete(), u.GetName()
	c.Artifact.Metadata = map[string]any{"mediaType": u.GetMediaType(), "size": u.GetSize()}
	if u.GetVersion() > 0 {
		c.Artifact.Metadata["version"] = u.GetVersion()
	}
	return c
}
