package llm

import (
	"fmt"
	"mime"
	"strings"
	"unicode/utf8"

	"github.com/troupe-dev/troupe/pkg/conversation"
)

// PDF is the media type of documents that some providers read beside pictures.
const PDF = "application/pdf"

// MediaType returns the media type of an attachment in lower case and without parameters (empty if it is invalid).
func MediaType(a conversation.Attachment) string {
	base, _, err := mime.ParseMediaType(a.MediaType)
	if err != nil {
		return ""
	}
	return base
}

// IsImage reports whether a media type is an image that every provider reads: png, jpeg, webp or gif.
func IsImage(mediaType string) bool {
	switch mediaType {
	case "image/png", "image/jpeg", "image/webp", "image/gif":
		return true
	default:
		return false
	}
}

// Shown is what an adapter makes of the attachments of a message: the files that the model
// takes, to be sent in the provider's own form, and the message's text with all others. Of text
// it has the whole, and of the rest a line that says what is not shown: what the model does not
// take, and what is here without its bytes, as it is of an earlier turn (AD-25).
func Shown(m conversation.Message, takes func(mediaType string) bool) (text string, files []conversation.Attachment) {
	said := []string{}
	if m.Text != "" {
		said = append(said, m.Text)
	}
	for _, a := range m.Attachments {
		mediaType := MediaType(a)
		switch {
		case len(a.Data) > 0 && takes(mediaType):
			files = append(files, a)
		case IsText(a):
			said = append(said, fmt.Sprintf("[attachment %s, %s, %s]\n%s\n[end of %s]", a.Name, a.MediaType, size(a.Size),
				strings.TrimRight(string(a.Data), "\n"), a.Name))
		default:
			said = append(said, fmt.Sprintf("[attachment %s, %s, %s: not shown to this model]", a.Name, a.MediaType, size(a.Size)))
		}
	}
	return strings.Join(said, "\n\n"), files
}

// IsText reports whether an attachment is here and can be read as text: any text, and the
// formats of data that are text too.
func IsText(a conversation.Attachment) bool {
	mediaType := MediaType(a)
	switch mediaType {
	case "application/json", "application/yaml", "application/x-yaml", "application/xml":
	default:
		if !strings.HasPrefix(mediaType, "text/") {
			return false
		}
	}
	return len(a.Data) > 0 && utf8.Valid(a.Data)
}

// size is a number of bytes for people.
func size(bytes int64) string {
	switch {
	case bytes < 1<<10:
		return fmt.Sprintf("%d B", bytes)
	case bytes < 1<<20:
		return fmt.Sprintf("%d KiB", (bytes+1<<9)/(1<<10))
	default:
		return fmt.Sprintf("%.1f MiB", float64(bytes)/(1<<20))
	}
}
