package turns

import (
	_ "embed"
	"slices"

	"github.com/troupe-dev/troupe/internal/wire/memorywire"
	"github.com/troupe-dev/troupe/pkg/memory"
	"github.com/troupe-dev/troupe/services/memory/internal/redisstore/contents"
	"github.com/troupe-dev/troupe/services/memory/internal/redisstore/db"
	"github.com/troupe-dev/troupe/services/memory/internal/redisstore/messages"
)

//go:embed scripts/attach.lua
var attachSource string

// files are the attachments of the message with which a turn begins. Each becomes a version of an artifact, and
// the stored message contains the version numbers. So the numbers are assumed before the script runs. If they are
// wrong, the script replies with the right numbers and writes nothing.
type files struct {
	request  memory.Begin
	versions []string // version numbers, in the order of the files
}

func newFiles(b memory.Begin) files {
	return files{b, slices.Repeat([]string{"1"}, len(b.NewFiles()))}
}

// encodeMessage returns the message in its encoding for the log (empty if the turn has none).
func (f files) encodeMessage() ([]byte, error) {
	said := f.request.UserMessages()
	if len(said) == 0 {
		return nil, nil
	}
	m, next := said[0], 0 // there is at most one
	m.Attachments = slices.Clone(m.Attachments)
	for i, a := range m.Attachments {
		if a.Version == 0 {
			m.Attachments[i].Version, m.Attachments[i].Size = int(db.ParseNumber(f.versions[next])), int64(len(a.Data))
			next++
		}
	}
	return messages.EncodeBody(m)
}

// keys returns the KEYS of attach.lua for the new files.
func (f files) keys() []string {
	if len(f.versions) == 0 {
		return nil
	}
	at := db.SessionLocation(f.request.Ref)
	all := []string{at("arts"), at("staged")}
	for _, a := range f.request.NewFiles() {
		all = append(all, contents.ContentKeys(at, memory.ContentOf(a.Data))...)
	}
	return all
}

// args returns the arguments of attach.lua for the new files.
func (f files) args() ([]any, error) {
	if len(f.versions) == 0 {
		return nil, nil
	}
	all := []any{memory.MaxArtifacts, memory.MaxSessionArtifactBytes, len(f.versions)}
	for i, a := range f.request.NewFiles() {
		content := memory.ContentOf(a.Data)
		artifact := memory.Artifact{Content: content, Name: a.Name, MediaType: a.MediaType, Turn: f.request.TurnID}
		stored, err := db.Encoding.Marshal(memorywire.ArtifactToProto(artifact))
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

// withVersions returns the files with the version numbers in the script's reply.
func (f files) withVersions(r db.Reply) files {
	versions := r.Array(1)
	f.versions = make([]string, len(versions))
	for i := range versions {
		f.versions[i] = versions.Text(i)
	}
	return f
}
