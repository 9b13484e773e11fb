package turncred

import (
	"context"

	"github.com/troupe-dev/troupe/internal/identity"
	"github.com/troupe-dev/troupe/internal/rpc"
	"github.com/troupe-dev/troupe/pkg/failure"
)

// Authenticate makes a call that shows the credential of a turn one of a worker: of the agent and
// the tenant that the credential names. Where the connection proves who calls, that has to be this
// worker: the credential of another one is of no use to who has it. All other calls are for next. What
// a call of a turn may touch is to be checked by the turn that Of returns.
//
// Modes, where the connection proves who calls: those of Verify. Where it does not, a credential is
// all that the caller shows, and one that proves nothing, or no longer, is user_unauthenticated: it
// counts among the failures of its address (guarantees S10).
func Authenticate(a *Authority, next rpc.Authenticate) rpc.Authenticate {
	if a == nil {
		return next
	}
	return func(ctx context.Context) (identity.Principal, error) {
		t, ok, err := a.Of(ctx)
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
				"the credential of the turn is another agent's; send the one of the step as it is")
		}
		return p, nil
	}
}
