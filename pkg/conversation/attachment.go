package conversation

import "slices"

// The limits of the attachments of one message (AD-25, CO-74). They leave room for the text in one gRPC message
// (rpc.MaxMessageBytes).
const (
	MaxAttachments     = 8
	MaxAttachmentBytes = 1 << 20 // per file
	MaxAttachedBytes   = 3 << 20 // all files together

	// MaxShownBytes limits the files of all tool results that a model reads in one request. Providers accept requests
	// of about 20 MB.
	MaxShownBytes = 10 << 20
)

// Attachment is a file that accompanies the text of a user's message (AD-25) or of a tool result (CO-74). Its content is
// stored as an artifact of the session, which the stored message refers to by name and version.
type Attachment struct {
	Name      string // name of the artifact
	MediaType string
	Size      int64  // in bytes
	Version   int    // version of the artifact, from 1 (0 until it is stored)
	Data      []byte `json:"-"` // content, only set while the message is sent to a store or a model; do not modify it
}

// AttachmentsWithoutData returns the attachments without their content, as a store keeps them.
func AttachmentsWithoutData(attachments []Attachment) []Attachment {
	refs := slices.Clone(attachments)
	for i := range refs {
		refs[i].Data = nil
	}
	return refs
}

// WithoutData returns the message without the content of its attachments, as a store keeps it.
func (m Message) WithoutData() Message {
	m.Attachments = AttachmentsWithoutData(m.Attachments)
	return m
}
