package turncred

import (
	"context"

	"github.com/troupe-dev/troupe/internal/identity"
	"github.com/troupe-dev/troupe/internal/rpc"
	"github.com/troupe-dev/troupe/pkg/failure"
)

// Authenticate authenticates a call that carries a turn credential. The caller becomes a worker with the agent and
// tenant of the credential. If the connection proves the caller by certificate, it must be this worker, so a
// stolen credential is useless to others. Calls without a credential are passed to next. Handlers use
// TurnFromContext to limit what the call may touch.
//
// If the connection proves the caller, the modes are the same as in Verify. Otherwise an invalid or expired
// credential fails with user_unauthenticated and counts as a failure of the caller's address (guarantee S10).
func Authenticate(a *Authority, next rpc.Authenticator) rpc.Authenticator {
	if a == nil {
		return next
	}
	return func(ctx context.Context) (identity.Principal, error) {
		t, ok, err := a.TurnFromContext(ctx)
		if !ok {
			return next(ctx)
		}
		p := identity.Principal{Role: identity.Worker, Name: t.Agent, Tenant: t.Tenant}
		caller, proven := identity.CallerFromContext(ctx)
		switch {
		case err != nil && proven:
			return identity.Principal{Role: caller.Role, Name: caller.Name}, err
		case err != nil:
			return identity.Principal{Role: identity.Anybody}, failure.New(failure.UserUnauthenticated, op, failure.PlainMessage(err)).Because(err)
		case proven && (caller.Role != identity.Worker || caller.Name != t.Agent):
			return identity.Principal{Role: caller.Role, Name: caller.Name}, failure.New(failure.PolicySecurity, "call",
				"the credential belongs to another agent; send the credential of the step unchanged")
		}
		return p, nil
	}
}
