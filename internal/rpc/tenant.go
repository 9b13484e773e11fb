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

// ForTenant returns a context whose calls over connections of Dial name their tenant. Servers inside the mesh believe the
// orchestrator. Workers prove their tenant.
func ForTenant(ctx context.Context, tenant string) context.Context {
	return context.WithValue(ctx, tenantValue{}, tenant)
}

// tenantOf returns the tenant that the caller names, or the default one. An invalid name is rejected, because the call
// would otherwise run for a tenant that the caller does not mean.
func tenantOf(ctx context.Context) (string, error) {
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
