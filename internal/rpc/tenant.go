package rpc

import (
	"context"

	"google.golang.org/grpc/metadata"

	"github.com/troupe-dev/troupe/internal/identity"
	"github.com/troupe-dev/troupe/pkg/failure"
)

// tenantKey is the metadata of a call that is made for a tenant.
const tenantKey = "troupe-tenant"

type tenantValue struct{}

// ForTenant returns a context whose calls over connections of Dial say for which tenant they are
// made. Servers inside the mesh believe the orchestrator; workers prove theirs.
func ForTenant(ctx context.Context, tenant string) context.Context {
	return context.WithValue(ctx, tenantValue{}, tenant)
}

// tenantTold is the tenant that the caller names, the default one when it names none. What is no
// name of a tenant is refused: the call would be one for a tenant that its caller does not mean.
func tenantTold(ctx context.Context) (string, error) {
	said := metadata.ValueFromIncomingContext(ctx, tenantKey)
	switch {
	case len(said) == 0:
		return identity.DefaultTenant, nil
	case len(said) > 1:
		return "", failure.Newf(failure.UserInvalidInput, "call", "%s: the call names %d tenants; send one", tenantKey, len(said)).With("fields", tenantKey)
	}
	if err := identity.CheckTenant(said[0]); err != nil {
		return "", failure.Newf(failure.UserInvalidInput, "call", "%s: %v", tenantKey, err).With("fields", tenantKey)
	}
	return said[0], nil
}
