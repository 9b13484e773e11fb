package memory

import (
	"fmt"
	"strings"
	"unicode/utf8"

	"github.com/troupe-dev/troupe/pkg/failure"
)

// CheckArtifactName returns why no artifact can be stored under a name; nil when one can
// (AD-23). For all stores, and for who keeps an artifact until it is stored. Whoever loads an
// artifact may make a file of it, so a name has no slash of either kind. What was stored under
// such a name before there was this rule can be read and deleted. Modes: user_invalid_input
// with the name as a fact.
func CheckArtifactName(op, name string) error {
	wrong := func(why string) error {
		return failure.Newf(failure.UserInvalidInput, op, "artifact %q: %s", name, why).With("name", strings.ToValidUTF8(name, "?"))
	}
	switch {
	case name == "" || len(name) > MaxArtifactName || !utf8.ValidString(name):
		return wrong(fmt.Sprintf("a name has 1 to %d bytes of UTF-8", MaxArtifactName))
	case strings.ContainsAny(name, `/\`):
		return wrong(`a name has no / and no \; put a dot or a hyphen there`)
	case name == "user:":
		return wrong("behind user: there is no name; add one")
	}
	return nil
}
