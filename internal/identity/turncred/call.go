package turncred

import (
	"context"

	"google.golang.org/grpc/metadata"

	"github.com/troupe-dev/troupe/internal/identity"
	"github.com/troupe-dev/troupe/internal/turnctx"
)

// credentialOf returns the credential that the caller of a call shows, and whether it shows one. Two values prove
// nothing and give the empty one.
func credentialOf(ctx context.Context) (string, bool) {
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

// Of returns the turn for which a call was made, and whether it shows one. Modes: those of Verify.
func (a *Authority) Of(ctx context.Context) (Turn, bool, error) {
	credential, ok := credentialOf(ctx)
	if a == nil || !ok {
		return Turn{}, false, nil
	}
	t, err := a.Verify(credential)
	return t, true, err
}

// ParentTrace returns the trace of the turn that made a call, as the caller says, and "" when no turn made it.
// Only two callers are believed: a worker, which shows the credential of the turn, and any caller of a port
// that asks nobody for proof.
func ParentTrace(ctx context.Context) string {
	role := identity.PrincipalOf(ctx).Role
	if ids := metadata.ValueFromIncomingContext(ctx, turnctx.ParentTraceKey); len(ids) > 0 && (role == identity.Worker || role == identity.Anybody) {
		return ids[0]
	}
	return ""
}
