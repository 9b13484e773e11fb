package turn

import (
	"github.com/troupe-dev/troupe/internal/wire"
	"github.com/troupe-dev/troupe/pkg/conversation"
	troupev1 "github.com/troupe-dev/troupe/pkg/gen/troupe/v1"
	"github.com/troupe-dev/troupe/pkg/memory"
)

// attachments are the files that came with the message of a turn, as the session has them.
func attachments(begun memory.Begun) []conversation.Attachment {
	for _, m := range begun.History {
		if m.Role == conversation.RoleUser && m.Author == "" && m.Turn == begun.Turn.Number {
			return m.Attachments
		}
	}
	return nil
}

// blobs are files as events tell of them: without their bytes.
func blobs(files []conversation.Attachment) []*troupev1.Blob {
	var all []*troupev1.Blob
	for _, f := range conversation.References(files) {
		all = append(all, wire.BlobToProto(f))
	}
	return all
}
