package wire

import (
	"cmp"
	"net/http"

	"github.com/troupe-dev/troupe/internal/attachment"
	"github.com/troupe-dev/troupe/internal/wire/convert"
	"github.com/troupe-dev/troupe/pkg/conversation"
	troupev1 "github.com/troupe-dev/troupe/pkg/gen/troupe/v1"
)

// AttachmentsToProto converts attachments to message parts. A part contains the bytes if the attachment has them.
func AttachmentsToProto(as []conversation.Attachment) []*troupev1.Part {
	return convert.All(as, func(a conversation.Attachment) *troupev1.Part {
		return &troupev1.Part{Content: &troupev1.Part_Blob{Blob: BlobToProto(a)}}
	})
}

// AttachmentsFromProto returns the attachments among the parts of a message.
func AttachmentsFromProto(parts []*troupev1.Part) []conversation.Attachment {
	var all []conversation.Attachment
	for _, p := range parts {
		if b := p.GetBlob(); b != nil {
			all = append(all, BlobFromProto(b))
		}
	}
	return all
}

// BlobToProto converts one attachment.
func BlobToProto(a conversation.Attachment) *troupev1.Blob {
	b := &troupev1.Blob{Name: a.Name, MediaType: a.MediaType, Data: a.Data, Size: a.Size}
	if a.Version > 0 {
		b.Artifact = &troupev1.ArtifactRef{Name: a.Name, Version: int32(a.Version)}
	}
	return b
}

// BlobFromProto is the inverse of BlobToProto. If the bytes are present, the size is their length.
func BlobFromProto(b *troupev1.Blob) conversation.Attachment {
	a := conversation.Attachment{
		Name: b.GetName(), MediaType: b.GetMediaType(), Size: b.GetSize(), Version: int(b.GetArtifact().GetVersion()), Data: b.GetData(),
	}
	if len(a.Data) > 0 {
		a.Size = int64(len(a.Data))
	}
	return a
}

// InputFiles returns the files among the parts of a user's input, or an error if they cannot be attached. A file without
// a media type gets the type that its content suggests. The caller's version and size are ignored, because the store sets
// them.
func InputFiles(parts []*troupev1.Part) ([]conversation.Attachment, error) {
	files := AttachmentsFromProto(parts)
	for i, f := range files {
		files[i].Version, files[i].Size = 0, int64(len(f.Data))
		files[i].MediaType = cmp.Or(f.MediaType, http.DetectContentType(f.Data))
	}
	return files, attachment.Check("OrchestrateRequest", "parts", files)
}
