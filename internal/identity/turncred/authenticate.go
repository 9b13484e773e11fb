package turncred

import (
	"context"

	"github.com/troupe-dev/troupe/internal/identity"
	"github.com/troupe-dev/troupe/internal/rpc"
	"github.com/troupe-dev/troupe/pkg/failure"
)

// Authenticate authenticates a call that shows the credential of a turn as a worker, with the agent and tenant
// of the credential. If the connection proves the caller by certificate, it must be this worker: a stolen
// credential is useless to others. Other calls go to next. TurnOfCall returns the turn, which limits what the
// call may touch.
//
// Modes, where the connection proves the caller: the modes of Verify. Otherwise the credential is all that the
// caller shows; an invalid or expired one is user_unauthenticated and counts as a failure of its address
// (guarantees S10).
func Authenticate(a *Authority, next rpc.Authenticate) rpc.Authenticate {
	if a == nil {
		return next
	}
	return func(ctx context.Context) (identity.Principal, error) {
		t, ok, err := a.TurnOfCall(ctx)
		if !ok {
			return next(ctx)
		}
		p := identity.Principal{Role: identity.Worker, Name: t.Agent, Tenant: t.Tenant}
		caller, proven := identity.Caller(ctx)
		switch {
		case err != nil && proven:
			return identity.Principal{Role: caller.Role, Name: caller.Name}, err
		case err != nil:
			return identity.Principal{Role: identity.Anybody}, failure.New(failure.UserUnauthenticated, op, failure.Plain(err)).Because(err)
		case proven && (caller.Role != identity.Worker || caller.Name != t.Agent):
			return identity.Principal{Role: caller.Role, Name: caller.Name}, failure.New(failure.PolicySecurity, "call",
				"the credential belongs to another agent; send the credential of the step unchanged")
		}
		return p, nil
	}
}
