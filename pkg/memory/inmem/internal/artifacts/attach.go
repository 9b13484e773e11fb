package artifacts

import (
	"bytes"

	"github.com/troupe-dev/troupe/pkg/conversation"
	"github.com/troupe-dev/troupe/pkg/memory"
	"github.com/troupe-dev/troupe/pkg/memory/inmem/internal/db"
)

// CanAttach reports whether the artifacts of the session have room for the files of a message. The caller holds
// the lock.
func (s *Artifacts) CanAttach(c *db.Session, b memory.Begin) bool {
	set, added, size := c.Artifacts, 0, c.Artifacts.TotalSize()
	attached := map[memory.Content]bool{}
	for _, f := range b.NewFiles() {
		content := memory.ContentOf(f.Data)
		attached[content] = true
		if latest, ok := set.Find(f.Name, 0); !ok || latest.Content != content {
			added, size = added+1, size+content.Size
		}
	}
	staged, stagedBytes := s.countStagedContent(set, func(content memory.Content) bool { return attached[content] })
	return added == 0 ||
		len(set.Versions)+staged+added <= memory.MaxArtifacts && size+stagedBytes <= memory.MaxSessionArtifactBytes
}

// Attach stores the files of a message as artifacts. It returns references to all attachments of the message. The
// caller holds the lock.
func (s *Artifacts) Attach(c *db.Session, turnID string, b memory.Begin) []conversation.Attachment {
	set, refs := c.Artifacts, conversation.AttachmentsWithoutData(b.Message.Attachments)
	for i, f := range b.Message.Attachments {
		if f.Version > 0 {
			continue
		}
		a := memory.Artifact{Content: memory.ContentOf(f.Data), Name: f.Name, MediaType: f.MediaType}
		refs[i].Size = a.Size
		if latest, ok := set.Find(f.Name, 0); ok && latest.Content == a.Content {
			refs[i].Version = latest.Version
			continue
		}
		set.Contents[a.Content] = &db.Content{Bytes: bytes.Clone(f.Data), StagedAt: s.db.Now()}
		refs[i].Version = set.Add(a, turnID, s.db.Now()).Version
	}
	return refs
}
