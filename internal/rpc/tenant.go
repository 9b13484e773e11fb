package rpc

import (
	"context"

	"google.golang.org/grpc/metadata"

	"github.com/troupe-dev/troupe/internal/identity"
	"github.com/troupe-dev/troupe/pkg/failure"
)

// tenantMetadataKey is the metadata key that carries the tenant of a call.
const tenantMetadataKey = "troupe-tenant"

type tenantContextKey struct{}

// WithTenant returns a context whose calls carry the tenant as metadata, if they use a connection of Dial. Servers
// inside the mesh trust the tenant from an orchestrator. A worker must prove its tenant.
func WithTenant(ctx context.Context, tenant string) context.Context {
	return context.WithValue(ctx, tenantContextKey{}, tenant)
}

// tenantFromContext returns the tenant in the metadata of an incoming call, or the default tenant. It rejects an
// invalid name, because the call would otherwise run for a tenant that the caller did not choose.
func tenantFromContext(ctx context.Context) (string, error) {
	said := metadata.ValueFromIncomingContext(ctx, tenantMetadataKey)
	switch {
	case len(said) == 0:
		return identity.DefaultTenant, nil
	case len(said) > 1:
		return "", failure.Newf(failure.UserInvalidInput, "call", "%s: the call names %d tenants; send one", tenantMetadataKey, len(said)).With("fields",
			tenantMetadataKey)
	}
	if err := identity.CheckTenant(said[0]); err != nil {
		return "", failure.Newf(failure.UserInvalidInput, "call", "%s: %v", tenantMetadataKey, err).With("fields", tenantMetadataKey)
	}
	return said[0], nil
}
