package identity

import "context"

// Principal is the authenticated caller of a method.
type Principal struct {
	// Role decides which methods the caller may call.
	Role Role
	// Name is the agent of a worker, or the subject of a client or an admin (empty for other roles).
	Name string
	// Tenant owns the objects that the call may touch. A client has its own tenant; a process has the tenant of
	// the turn or caller that it works for. It never comes from the request.
	Tenant string
}

// DefaultTenant is the tenant of callers that authenticate without a tenant, or not at all.
const DefaultTenant = "default"

// String returns the role, followed by the name if there is one, for logs and errors.
func (p Principal) String() string {
	if p.Name == "" {
		return string(p.Role)
	}
	return string(p.Role) + " " + p.Name
}

type principalKey struct{}

// WithPrincipal returns a context with the principal of a call.
func WithPrincipal(ctx context.Context, p Principal) context.Context {
	return context.WithValue(ctx, principalKey{}, p)
}

// PrincipalOf returns the principal of the call of the context (Anybody of the default tenant on a port without
// authentication).
func PrincipalOf(ctx context.Context) Principal {
	if p, ok := ctx.Value(principalKey{}).(Principal); ok {
		return p
	}
	return Principal{Role: Anybody, Tenant: DefaultTenant}
}
