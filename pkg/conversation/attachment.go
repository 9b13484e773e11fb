package conversation

import "slices"

// Limits of what one message brings (AD-25). All of it and the text fit into one message of the
// wire, rpc.MaxMessageBytes.
const (
	MaxAttachments     = 8
	MaxAttachmentBytes = 1 << 20 // of one
	MaxAttachedBytes   = 3 << 20 // of all
)

// Attachment is a file beside the text of a message (AD-25). What it holds is an artifact of
// the session; a message that is stored only names it.
type Attachment struct {
	Name      string // of the artifact
	MediaType string
	Size      int64  // in bytes
	Version   int    // of the artifact, from 1; 0 until it is stored
	Data      []byte // only on the way to the store, or to a model; not to be changed
}

// References are attachments as they are stored: without their bytes.
func References(attachments []Attachment) []Attachment {
	refs := slices.Clone(attachments)
	for i := range refs {
		refs[i].Data = nil
	}
	return refs
}

// WithoutData returns a message as a store keeps it: without the bytes of its attachments.
func (m Message) WithoutData() Message {
	m.Attachments = References(m.Attachments)
	return m
}
