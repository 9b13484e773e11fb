package identity

import "context"

// Principal is the authenticated caller of a method.
type Principal struct {
	// Role determines which methods the caller may call.
	Role Role
	// Name is the agent of a worker, or the subject of a client or an admin (empty for other roles).
	Name string
	// Tenant owns the objects that the call may touch. A client has its own tenant. A process has the tenant of
	// the turn or caller for which it works. The tenant never comes from the request.
	Tenant string
}

// DefaultTenant is the tenant of callers that have no tenant or are not authenticated.
const DefaultTenant = "default"

// String returns the role, and the name if there is one, for logs and errors.
func (p Principal) String() string {
	if p.Name == "" {
		return string(p.Role)
	}
	return string(p.Role) + " " + p.Name
}

type principalKey struct{}

// WithPrincipal returns a context that carries the principal of a call.
func WithPrincipal(ctx context.Context, p Principal) context.Context {
	return context.WithValue(ctx, principalKey{}, p)
}

// PrincipalFromContext returns the principal of the current call. On a port without authentication it returns
// Anybody in the default tenant.
func PrincipalFromContext(ctx context.Context) Principal {
	if p, ok := ctx.Value(principalKey{}).(Principal); ok {
		return p
	}
	return Principal{Role: Anybody, Tenant: DefaultTenant}
}
