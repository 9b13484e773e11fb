// Package attachment checks the files that accompany a message, and the names of artifacts.
package attachment

import (
	"fmt"
	"strings"
	"unicode/utf8"

	"github.com/troupe-dev/troupe/pkg/conversation"
	"github.com/troupe-dev/troupe/pkg/failure"
)

// The limits of an artifact, in bytes.
const (
	MaxNameBytes     = 256
	MaxArtifactBytes = 64 << 20
)

const maxMediaTypeBytes = 128 // bytes

// userPrefix begins the names of artifacts that belong to the user instead of the session.
const userPrefix = "user:"

// Check rejects files that cannot be attached to a message. Its errors name a file as an element of
// field. Modes: user_invalid_input with the fact fields.
func Check(op, field string, files []conversation.Attachment) error {
	wrong := func(i int, why string) error {
		return failure.Newf(failure.UserInvalidInput, op, "%s[%d] (%q): %s", field, i, files[i].Name, why).
			With("fields", fmt.Sprintf("%s[%d]", field, i))
	}
	if len(files) > conversation.MaxAttachments {
		return failure.Newf(failure.UserInvalidInput, op, "%s: %d files are too many; at most %d go with one message, so send the others with the next",
			field, len(files), conversation.MaxAttachments).With("fields", field)
	}
	seen, total := map[string]bool{}, 0
	for i, f := range files {
		total += len(f.Data)
		err := CheckName(op, f.Name)
		switch {
		case err != nil:
			return wrong(i, failure.PlainMessage(err))
		case strings.HasPrefix(f.Name, userPrefix):
			return wrong(i, "a file belongs to its session, so its name must not begin with user:; leave that out")
		case seen[f.Name]:
			return wrong(i, "another file of the message has this name; give each its own")
		case len(f.MediaType) > maxMediaTypeBytes || strings.ContainsFunc(f.MediaType, isNotPrintableASCII):
			return wrong(i, fmt.Sprintf("the media type is no word like image/png of at most %d bytes; leave it out to have it detected from the content",
				maxMediaTypeBytes))
		case len(f.Data) == 0:
			return wrong(i, "the file is empty; leave it out")
		case len(f.Data) > conversation.MaxAttachmentBytes:
			return wrong(i, fmt.Sprintf("%d bytes are too many; a file has at most %d, so send less of it, or let a tool of the agent read it",
				len(f.Data), conversation.MaxAttachmentBytes))
		}
		seen[f.Name] = true
	}
	if total > conversation.MaxAttachedBytes {
		return failure.Newf(failure.UserInvalidInput, op,
			"%s: %d bytes are too many; the files of one message have at most %d together, so send the others with the next",
			field, total, conversation.MaxAttachedBytes).With("fields", field)
	}
	return nil
}

func isNotPrintableASCII(r rune) bool { return r <= ' ' && r != ' ' || r > '~' }

// CheckName rejects invalid names for new artifacts. See memory.CheckArtifactName.
func CheckName(op, name string) error {
	wrong := func(why string) error {
		return failure.Newf(failure.UserInvalidInput, op, "artifact %q: %s", name, why).With("name", strings.ToValidUTF8(name, "?"))
	}
	switch {
	case name == "" || len(name) > MaxNameBytes || !utf8.ValidString(name):
		return wrong(fmt.Sprintf("a name has 1 to %d bytes of UTF-8", MaxNameBytes))
	case strings.ContainsAny(name, `/\`):
		return wrong(`a name has no / and no \; put a dot or a hyphen there`)
	case name == userPrefix:
		return wrong("there is no name after user:; add one")
	}
	return nil
}
