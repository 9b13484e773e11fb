package memory

import "github.com/troupe-dev/troupe/internal/attachment"

// CheckArtifactName rejects invalid names for new artifacts (AD-23). A name has neither a slash nor a backslash,
// because a reader may use it as a file name. Artifacts that an older version stored under such a name can still
// be read and deleted. Modes: user_invalid_input with the fact name.
func CheckArtifactName(op, name string) error {
	return attachment.CheckName(op, name)
}
