package rpc

import (
	"context"

	"google.golang.org/grpc"
	"google.golang.org/grpc/peer"

	"github.com/troupe-dev/troupe/internal/audit"
	"github.com/troupe-dev/troupe/internal/authz"
	"github.com/troupe-dev/troupe/internal/identity"
	"github.com/troupe-dev/troupe/internal/telemetry"
)

// Authenticate says who sends the call of a context. Its errors go to the caller, and have the
// mode user_unauthenticated where nobody is proven; what it returns beside one is whom the audit
// log names.
type Authenticate func(ctx context.Context) (identity.Principal, error)

// known finds out who calls (guarantees 4.2, S1). Handlers ask identity.PrincipalOf.
func known(cfg Config, log *audit.Log) link {
	authenticate := cfg.Authenticate
	if authenticate == nil {
		authenticate = Certified
	}
	admit := func(ctx context.Context, method string) (context.Context, error) {
		caller, err := authenticate(ctx)
		if who, ok := ctx.Value(askingKey{}).(*identity.Principal); ok {
			*who = caller
		}
		if err != nil {
			refused(ctx, log, caller, method, nil, err)
			return nil, err
		}
		return identity.WithPrincipal(ctx, caller), nil
	}
	return link{
		name: "known",
		unary: func(ctx context.Context, req any, info *grpc.UnaryServerInfo, next grpc.UnaryHandler) (any, error) {
			ctx, err := admit(ctx, info.FullMethod)
			if err != nil {
				return nil, err
			}
			return next(ctx, req)
		},
		stream: func(srv any, ss grpc.ServerStream, info *grpc.StreamServerInfo, next grpc.StreamHandler) error {
			ctx, err := admit(ss.Context(), info.FullMethod)
			if err != nil {
				return err
			}
			return next(srv, &boundStream{ss, ctx})
		},
	}
}

// asking returns the context of a call in which known says who sends it, also to those outside of
// it: the log at the edge names him.
func asking(ctx context.Context) (context.Context, *identity.Principal) {
	who := &identity.Principal{}
	return context.WithValue(ctx, askingKey{}, who), who
}

type askingKey struct{}

// permitted refuses what the table does not let the caller call (S2), and all calls of one that is
// barred (S18). Only the first is a violation of ownership: the other may call this, at other times.
// It comes after paced, so that a caller is refused no more often than he may call.
func permitted(cfg Config, log *audit.Log, violations *telemetry.Violations) link {
	return around("permitted", func(ctx context.Context, method string, call func(context.Context) error) error {
		caller := identity.PrincipalOf(ctx)
		if err := authz.Permit(method, caller); err != nil {
			refused(ctx, log, caller, method, nil, err)
			return trespass(ctx, violations, caller, method, err)
		}
		if cfg.Barred != nil {
			if err := cfg.Barred(caller, method); err != nil {
				refused(ctx, log, caller, method, nil, err)
				return err
			}
		}
		return call(ctx)
	})
}

// refused records that a call was refused, with from where it came, and on what it would have
// worked once its request was read. Why it was sent is left out: who is refused is no operator.
func refused(ctx context.Context, log *audit.Log, caller identity.Principal, method string, req any, err error) {
	e := audit.Entry{
		Kind: audit.Denied, Actor: caller.String(), Action: method, Result: outcome(err),
		Facts: map[string]string{"tenant": caller.Tenant, "peer": address(ctx)},
	}
	e.Object = named(req, e.Facts)
	delete(e.Facts, "reason")
	log.Record(e)
}

// address is from where a call comes.
func address(ctx context.Context) string {
	if p, ok := peer.FromContext(ctx); ok {
		return p.Addr.String()
	}
	return ""
}

// Certified is who the certificate of the connection proves; on a port without any, anybody. An
// orchestrator, and whoever calls a port that asks for no proof, says for which tenant it calls.
// Nobody else is believed that: a worker proves it by the credential of a turn. Modes:
// user_invalid_input for what names no tenant, whoever says it.
func Certified(ctx context.Context) (identity.Principal, error) {
	tenant, err := tenantTold(ctx)
	id, ok := identity.Caller(ctx)
	switch {
	case !ok:
		id.Role = identity.Anybody
	case id.Role != identity.Orchestrator:
		tenant = identity.DefaultTenant
	}
	return identity.Principal{Role: id.Role, Name: id.Name, Tenant: tenant}, err
}
