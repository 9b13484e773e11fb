package redisstore

import (
	_ "embed"
	"slices"

	"github.com/troupe-dev/troupe/internal/wire/memorywire"
	troupev1 "github.com/troupe-dev/troupe/pkg/gen/troupe/v1"
	"github.com/troupe-dev/troupe/pkg/memory"
)

//go:embed scripts/attach.lua
var attachSource string

// files are what a turn brings beside its message. The versions that they become are written
// into the message, so they are guessed: the script answers with the right ones when the guess
// is wrong, before it has written anything.
type files struct {
	begin    memory.Begin
	versions []string // by the order of the files
}

func newFiles(b memory.Begin) files {
	return files{b, slices.Repeat([]string{"1"}, len(b.Files()))}
}

// said is the message as the log holds it; empty when the turn has none.
func (f files) said() ([]byte, error) {
	said := f.begin.Said()
	if len(said) == 0 {
		return nil, nil
	}
	m, next := said[0], 0 // there is one at most
	m.Attachments = slices.Clone(m.Attachments)
	for i, a := range m.Attachments {
		if a.Version == 0 {
			m.Attachments[i].Version, m.Attachments[i].Size = int(number(f.versions[next])), int64(len(a.Data))
			next++
		}
	}
	return body(m)
}

// keys and args are those of scripts/attach.lua.
func (f files) keys() []string {
	if len(f.versions) == 0 {
		return nil
	}
	all := []string{key(f.begin.Ref, "arts"), key(f.begin.Ref, "staged")}
	for _, a := range f.begin.Files() {
		all = append(all, blobKeys(f.begin.Ref, memory.ContentOf(a.Data))...)
	}
	return all
}

func (f files) args() ([]any, error) {
	if len(f.versions) == 0 {
		return nil, nil
	}
	all := []any{memory.MaxArtifacts, memory.MaxSessionArtifacts, len(f.versions)}
	for i, a := range f.begin.Files() {
		content := memory.ContentOf(a.Data)
		stored, err := encoding.Marshal(f.artifact(a.Name, a.MediaType, content))
		if err != nil {
			return nil, err
		}
		pieces := slices.Collect(slices.Chunk(a.Data, memory.ArtifactChunk))
		all = append(all, a.Name, f.versions[i], content.SHA256, content.Size, stored, len(pieces))
		for _, piece := range pieces {
			all = append(all, piece)
		}
	}
	return all, nil
}

func (f files) artifact(name, mediaType string, c memory.Content) *troupev1.Artifact {
	return memorywire.ArtifactToProto(memory.Artifact{Content: c, Name: name, MediaType: mediaType, Turn: f.begin.TurnID})
}

// corrected has the versions that the script has answered with.
func (f files) corrected(r reply) files {
	versions := reply(r.list(1))
	f.versions = make([]string, len(versions))
	for i := range versions {
		f.versions[i] = versions.text(i)
	}
	return f
}
