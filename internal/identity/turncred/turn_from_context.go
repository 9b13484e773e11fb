package turncred

import (
	"context"

	"google.golang.org/grpc/metadata"

	"github.com/troupe-dev/troupe/internal/identity"
	"github.com/troupe-dev/troupe/internal/turnctx"
)

// credentialFromContext returns the credential in the metadata of a call, and whether there is one. If there is
// more than one value, it returns an empty credential, which is invalid.
func credentialFromContext(ctx context.Context) (string, bool) {
	values := metadata.ValueFromIncomingContext(ctx, turnctx.CredentialKey)
	switch len(values) {
	case 0:
		return "", false
	case 1:
		return values[0], true
	default:
		return "", true
	}
}

// TurnFromContext returns the turn that made a call, and whether the call carries a credential. Modes: see Verify.
func (a *Authority) TurnFromContext(ctx context.Context) (Turn, bool, error) {
	credential, ok := credentialFromContext(ctx)
	if a == nil || !ok {
		return Turn{}, false, nil
	}
	t, err := a.Verify(credential)
	return t, true, err
}

// ParentTraceFromContext returns the trace of the turn that made a call ("" if no turn made it). The value is
// accepted only from a worker, whose credential was verified, and on a port without authentication.
func ParentTraceFromContext(ctx context.Context) string {
	role := identity.PrincipalFromContext(ctx).Role
	if ids := metadata.ValueFromIncomingContext(ctx, turnctx.ParentTraceKey); len(ids) > 0 && (role == identity.Worker || role == identity.Anybody) {
		return ids[0]
	}
	return ""
}
