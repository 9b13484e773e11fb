// Package authz decides which roles may call which method. Its table has a row for each method of the mesh, and a
// method without a row may not be called (guarantees 4.2, S2). Handlers check which objects a call may touch, by
// the tenant and turn of the caller.
package authz

import (
	"maps"
	"slices"
	"strings"

	"github.com/troupe-dev/troupe/internal/identity"
	"github.com/troupe-dev/troupe/pkg/failure"
)

// Authorize returns an error if the principal may not call the method, given as /package.Service/Method. Modes:
// policy_security.
func Authorize(method string, p identity.Principal) error {
	roles, ok := table[method]
	if !ok {
		return failure.Newf(failure.PolicySecurity, "call", "%s may not be called by any client", method).With("method", method)
	}
	if p.Role == identity.Anybody || slices.Contains(roles, p.Role) {
		return nil
	}
	return failure.Newf(failure.PolicySecurity, "call", "%s may not call %s, which is for %s", p, method, formatRoles(roles)).With("method", method)
}

// RolesFor returns the roles that may call a method, and whether the method has a row.
func RolesFor(method string) ([]identity.Role, bool) {
	roles, ok := table[method]
	return slices.Clone(roles), ok
}

// Methods returns all methods that have a row, sorted by name.
func Methods() []string { return slices.Sorted(maps.Keys(table)) }

func formatRoles(roles []identity.Role) string {
	var names []string
	for _, role := range roles {
		names = append(names, string(role))
	}
	return strings.Join(names, " and ") + " alone"
}
