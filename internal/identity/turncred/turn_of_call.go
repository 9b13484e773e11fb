package turncred

import (
	"context"

	"google.golang.org/grpc/metadata"

	"github.com/troupe-dev/troupe/internal/identity"
	"github.com/troupe-dev/troupe/internal/turnctx"
)

// credentialOf returns the credential of a call and whether it carries one. Two values are invalid and give the
// empty credential.
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

// TurnOfCall returns the turn that made a call, and whether the call carries a credential. Modes: the modes of
// Verify.
func (a *Authority) TurnOfCall(ctx context.Context) (Turn, bool, error) {
	credential, ok := credentialOf(ctx)
	if a == nil || !ok {
		return Turn{}, false, nil
	}
	t, err := a.Verify(credential)
	return t, true, err
}

// ParentTrace returns the trace of the turn that made a call ("" if no turn made it). The value is taken only
// from a worker, which shows the credential of its turn, and from any caller of a port without authentication.
func ParentTrace(ctx context.Context) string {
	role := identity.PrincipalOf(ctx).Role
	if ids := metadata.ValueFromIncomingContext(ctx, turnctx.ParentTraceKey); len(ids) > 0 && (role == identity.Worker || role == identity.Anybody) {
		return ids[0]
	}
	return ""
}
