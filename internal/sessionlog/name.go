package sessionlog

import (
	"crypto/sha256"
	"fmt"
	"strings"
	"unicode"

	"github.com/troupe-dev/troupe/pkg/conversation"
)

// maxSlug limits a slug in bytes. With a digest and an extension added, it is still a valid file name on every
// file system.
const maxSlug = 60

// slug converts a text to a file name: its letters and digits in lower case, with hyphens between the words. It
// returns "session" if the text has no letters and digits.
func slug(text string) string {
	words := strings.FieldsFunc(strings.ToLower(conversation.Truncate(text, 4*maxSlug)), func(r rune) bool {
		return !unicode.IsLetter(r) && !unicode.IsDigit(r)
	})
	name := strings.Join(words, "-")
	if len(name) > maxSlug {
		name = conversation.Truncate(name, maxSlug)
		if i := strings.LastIndexByte(name, '-'); i > maxSlug/2 {
			name = name[:i]
		}
	}
	if name == "" {
		return "session"
	}
	return name
}

// candidateNames returns the possible names of a session log with this first input. The second name is used if the
// first one belongs to another input.
func candidateNames(first string) []string {
	name := slug(first)
	return []string{name, fmt.Sprintf("%s-%.8x", name, sha256.Sum256([]byte(first)))}
}

// safeName returns the name of an agent as a single path element. It leaves names that the mesh allows unchanged.
func safeName(agent string) string {
	name := strings.Map(func(r rune) rune {
		if r == '-' || r == '_' || unicode.IsLetter(r) || unicode.IsDigit(r) {
			return r
		}
		return '-'
	}, conversation.Truncate(agent, 2*maxSlug))
	if strings.Trim(name, "-") == "" {
		return "agent"
	}
	return name
}
