package memory

import (
	"fmt"
	"strings"
	"unicode/utf8"

	"github.com/troupe-dev/troupe/pkg/failure"
)

// CheckArtifactName rejects invalid names for new artifacts (AD-23). A name has neither a slash nor a backslash,
// because a reader may use it as a file name. Artifacts that an older version stored under such a name can still
// be read and deleted. Modes: user_invalid_input with the fact name.
func CheckArtifactName(op, name string) error {
	wrong := func(why string) error {
		return failure.Newf(failure.UserInvalidInput, op, "artifact %q: %s", name, why).With("name", strings.ToValidUTF8(name, "?"))
	}
	switch {
	case name == "" || len(name) > MaxArtifactNameBytes || !utf8.ValidString(name):
		return wrong(fmt.Sprintf("a name has 1 to %d bytes of UTF-8", MaxArtifactNameBytes))
	case strings.ContainsAny(name, `/\`):
		return wrong(`a name has no / and no \; put a dot or a hyphen there`)
	case name == "user:":
		return wrong("there is no name after user:; add one")
	}
	return nil
}
