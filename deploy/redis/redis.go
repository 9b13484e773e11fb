// Package redis provides users.acl, which defines the Redis users of a mesh.
package redis

import (
	_ "embed"
	"fmt"
	"maps"
	"slices"
	"strings"
)

//go:embed users.acl
var users string

// UsersACL returns users.acl with the given password for each named user. A user without a password cannot log in.
// It fails if a name is not in the file.
func UsersACL(passwords map[string]string) (string, error) {
	var file strings.Builder
	left := maps.Clone(passwords)
	for line := range strings.Lines(users) {
		line = strings.TrimSpace(line)
		if fields := strings.Fields(line); len(fields) > 1 {
			if password, ok := left[fields[1]]; ok {
				line += " >" + password
				delete(left, fields[1])
			}
		}
		file.WriteString(line + "\n")
	}
	if len(left) > 0 {
		return "", fmt.Errorf("users.acl has no users %q", slices.Sorted(maps.Keys(left)))
	}
	return file.String(), nil
}
