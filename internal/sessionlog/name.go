package sessionlog

import (
	"crypto/sha256"
	"fmt"
	"strings"
	"unicode"

	"github.com/troupe-dev/troupe/pkg/conversation"
)

// maxSlug bounds a slug in bytes; with a digest and an ending it is a name on every disk.
const maxSlug = 60

// slug is a text as a file name: its letters and digits in lower case, with one hyphen for
// all between them. It is "session" when there are none.
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

// slugs are the names that a session log of this first input may have: the second is for
// when the first is that of another.
func slugs(first string) []string {
	name := slug(first)
	return []string{name, fmt.Sprintf("%s-%.8x", name, sha256.Sum256([]byte(first)))}
}

// fileName is the name of an agent in a path: itself, when it is one that the mesh allows.
func fileName(agent string) string {
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
