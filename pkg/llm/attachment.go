package llm

import (
	"fmt"
	"mime"
	"strings"
	"unicode/utf8"

	"github.com/troupe-dev/troupe/pkg/conversation"
)

// PDF is the media type of PDF documents. Some providers accept them in addition to images.
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

// SplitAttachments splits a message into the text and the files that an adapter sends to its provider. files are
// the attachments that the model accepts. text is the text of the message with all other attachments: it contains
// text files completely, and a line with the name of each file that is not shown. A file is not shown if the model
// does not accept it, or if its bytes are missing because it is from an earlier turn (AD-25).
func SplitAttachments(m conversation.Message, takes func(mediaType string) bool) (text string, files []conversation.Attachment) {
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
			said = append(said, fmt.Sprintf("[attachment %s, %s, %s]\n%s\n[end of %s]", a.Name, a.MediaType, formatSize(a.Size),
				strings.TrimRight(string(a.Data), "\n"), a.Name))
		default:
			said = append(said, fmt.Sprintf("[attachment %s, %s, %s: not shown to this model]", a.Name, a.MediaType, formatSize(a.Size)))
		}
	}
	return strings.Join(said, "\n\n"), files
}

// IsText reports whether the content of an attachment is present and is text. Some data formats, such as JSON,
// count as text.
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

// formatSize formats a number of bytes for people, such as "3 KiB".
func formatSize(bytes int64) string {
	switch {
	case bytes < 1<<10:
		return fmt.Sprintf("%d B", bytes)
	case bytes < 1<<20:
		return fmt.Sprintf("%d KiB", (bytes+1<<9)/(1<<10))
	default:
		return fmt.Sprintf("%.1f MiB", float64(bytes)/(1<<20))
	}
}
