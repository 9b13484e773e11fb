package inmem

import (
	"bytes"
	"cmp"
	"slices"

	"github.com/troupe-dev/troupe/pkg/conversation"
	"github.com/troupe-dev/troupe/pkg/memory"
)

// attachable reports whether the session may have the files of a message too.
func (s *Store) attachable(c *conversed, b memory.Begin) bool {
	mine := map[memory.Content]bool{}
	count, added := len(c.artifacts), 0
	size := c.seen().ArtifactBytes
	for _, f := range b.NewFiles() {
		content := memory.ContentOf(f.Data)
		mine[content] = true
		if latest, ok := c.artifact(f.Name, 0); !ok || latest.Content != content {
			added, size = added+1, size+content.Size
		}
	}
	for content, known := range c.contents {
		if !mine[content] && !c.refers(content) && !s.past(known.staged, stagedFor) {
			count, size = count+1, size+content.Size
		}
	}
	return added == 0 || count+added <= memory.MaxArtifacts && size <= memory.MaxSessionArtifacts
}

// attach makes artifacts of the files of a message, and returns what the message says of all
// its attachments.
func (s *Store) attach(c *conversed, t *turn, b memory.Begin) []conversation.Attachment {
	refs := conversation.References(b.Message.Attachments)
	for i, f := range b.Message.Attachments {
		if f.Version > 0 {
			continue
		}
		a := memory.Artifact{Content: memory.ContentOf(f.Data), Name: f.Name, MediaType: f.MediaType}
		refs[i].Size = a.Size
		if latest, ok := c.artifact(f.Name, 0); ok && latest.Content == a.Content {
			refs[i].Version = latest.Version
			continue
		}
		c.versions[f.Name]++
		a.Version, a.Turn, a.Created = c.versions[f.Name], t.ID, s.now()
		refs[i].Version = a.Version
		c.contents[a.Content] = &content{bytes: bytes.Clone(f.Data), staged: s.now()}
		c.artifacts = append(c.artifacts, a)
	}
	slices.SortFunc(c.artifacts, func(a, b memory.Artifact) int {
		return cmp.Or(cmp.Compare(a.Name, b.Name), cmp.Compare(a.Version, b.Version))
	})
	return refs
}
