package api

import (
	"cmp"
	"net/http"

	"github.com/troupe-dev/troupe/internal/wire"
	"github.com/troupe-dev/troupe/pkg/conversation"
	troupev1 "github.com/troupe-dev/troupe/pkg/gen/troupe/v1"
	"github.com/troupe-dev/troupe/pkg/memory"
)

// attachmentsFromParts returns the files among the parts of an input. A file without a media type gets the type
// that its content suggests. The caller's version and size are ignored, because the store sets them.
func attachmentsFromParts(parts []*troupev1.Part) ([]conversation.Attachment, error) {
	files := wire.AttachmentsFromProto(parts)
	for i, f := range files {
		files[i].Version, files[i].Size = 0, int64(len(f.Data))
		files[i].MediaType = cmp.Or(f.MediaType, http.DetectContentType(f.Data))
	}
	return files, memory.CheckAttachments("OrchestrateRequest", "parts", files)
}
