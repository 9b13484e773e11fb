package registry

import (
	"fmt"
	"regexp"
)

var id = regexp.MustCompile(`^[A-Za-z0-9]([A-Za-z0-9._-]{0,126}[A-Za-z0-9])?$`)

// CheckID is nil for what an instance may be called, and else says what that may be. An id is a
// part of keys, and of what people type.
func CheckID(name string) error {
	if !id.MatchString(name) {
		return fmt.Errorf("%q: use a-z, A-Z, 0-9, dot, hyphen and underscore, at most 128 characters, a letter or digit at both ends", name)
	}
	return nil
}
