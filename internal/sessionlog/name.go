package sessionlog

import (
	"crypto/sha256"
	"fmt"
	"strings"
	"unicode"

	"github.com/troupe-dev/troupe/pkg/conversation"
)

// maxSlug bounds a slug in bytes. With a digest and an extension it is a valid file name on every file system.
const maxSlug = 60

// slug converts a text to a file name: its letters and digits in lower case, with one hyphen for everything
// between them. It returns "session" if there are none.
func slug(text string) string {
	words := strings.FieldsFunc(strings.ToLower(conversation.Cut(text, 4*maxSlug)), func(r rune) bool {
		return !unicode.IsLetter(r) && !unicode.IsDigit(r)
	})
	name := strings.Join(words, "-")
	if len(name) > maxSlug {
		name = conversation.Cut(name, maxSlug)
		if i := strings.LastIndexByte(name, '-'); i > maxSlug/2 {
			name = name[:i]
		}
	}
	if name == "" {
		return "session"
	}
	return name
}

// slugs returns the names that a session log with this first input may have. The second one is used if the
// first belongs to another input.
func slugs(first string) []string {
	name := slug(first)
	return []string{name, fmt.Sprintf("%s-%.8x", name, sha256.Sum256([]byte(first)))}
}

// safeName returns the name of an agent as one element of a path. A name that the mesh allows is unchanged.
func safeName(agent string) string {
	name := strings.Map(func(r rune) rune {
		if r == '-' || r == '_' || unicode.IsLetter(r) || unicode.IsDigit(r) {
			return r
		}
		return '-'
	}, conversation.Cut(agent, 2*maxSlug))
	if strings.Trim(name, "-") == "" {
		return "agent"
	}
	return name
}
