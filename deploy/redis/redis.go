// Package redis has the users of the Redis of a mesh, as users.acl ships them.
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

// Users is users.acl with a password for each user that is named. A user without one cannot log
// in. A name that is not in the file is an error.
func Users(passwords map[string]string) (string, error) {
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
