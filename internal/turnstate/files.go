package turnstate

import (
	"slices"

	"github.com/troupe-dev/troupe/pkg/conversation"
)

// limitFiles removes the content of the oldest files in tool results once all have more than MaxShownBytes together. It
// then keeps the latest half, because each removal changes the beginning of the next request, so that the provider's
// cache misses. The same messages always lose the same files.
func (c *Conversation) limitFiles() {
	if shownBytes(c.messages) <= conversation.MaxShownBytes {
		return
	}
	c.messages = slices.Clone(c.messages) // requests of earlier calls keep their files
	kept := 0
	for i, m := range slices.Backward(c.messages) {
		if m.Role != conversation.RoleTool {
			continue
		}
		if kept += shownBytes(c.messages[i : i+1]); kept > conversation.MaxShownBytes/2 {
			c.messages[i] = m.WithoutData()
		}
	}
}

// shownBytes returns how many bytes the files of tool results have whose content is present.
func shownBytes(messages []conversation.Message) int {
	n := 0
	for _, m := range messages {
		for _, a := range m.Attachments {
			if m.Role == conversation.RoleTool {
				n += len(a.Data)
			}
		}
	}
	return n
}

// FilesToLoad returns the files of tool results whose content is missing: the latest that have at most MaxShownBytes
// together. The caller may set their Data.
func (c *Conversation) FilesToLoad() []*conversation.Attachment {
	var files []*conversation.Attachment
	left := int64(conversation.MaxShownBytes)
	for i, m := range slices.Backward(c.messages) {
		if m.Role != conversation.RoleTool || len(m.Attachments) == 0 {
			continue
		}
		c.messages[i].Attachments = slices.Clone(m.Attachments)
		for k := range m.Attachments {
			f := &c.messages[i].Attachments[k]
			if f.Data != nil || f.Version == 0 {
				continue
			}
			if left -= f.Size; left < 0 {
				return files
			}
			files = append(files, f)
		}
	}
	return files
}
