package identity

import "context"

// Principal is who sends a call, as far as it is proven.
type Principal struct {
	// Role decides which methods it may call.
	Role Role
	// Name is the agent of a worker, the subject of a client or an admin; of other processes
	// empty.
	Name string
	// Tenant is whose objects the call may touch: of a client its own, of a process that of the
	// turn or the caller for which it calls. Never what the request says.
	Tenant string
}

// DefaultTenant is that of callers on a port that asks for no proof, and of those whose proof
// names none.
const DefaultTenant = "default"

// String names the principal for logs and errors: its role, and its name if it has one.
func (p Principal) String() string {
	if p.Name == "" {
		return string(p.Role)
	}
	return string(p.Role) + " " + p.Name
}

type principalKey struct{}

// WithPrincipal returns the context of a call of p.
func WithPrincipal(ctx context.Context, p Principal) context.Context {
	return context.WithValue(ctx, principalKey{}, p)
}

// PrincipalOf is who sent the call of the context. Where nobody was asked for a proof it is
// Anybody, of the default tenant.
func PrincipalOf(ctx context.Context) Principal {
	if p, ok := ctx.Value(principalKey{}).(Principal); ok {
		return p
	}
	return Principal{Role: Anybody, Tenant: DefaultTenant}
}
