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

// Authenticator returns the principal that makes the call with this context. Its errors are sent to the caller,
// with mode user_unauthenticated when no identity is proven. If it returns an error with a principal, the audit
// log names that principal.
type Authenticator func(ctx context.Context) (identity.Principal, error)

// authInterceptor authenticates the caller (guarantees 4.2, S1). Handlers get the principal from
// identity.PrincipalFromContext.
func authInterceptor(cfg Config, log *audit.Log) interceptor {
	authenticate := cfg.Authenticate
	if authenticate == nil {
		authenticate = PrincipalFromCertificate
	}
	admit := func(ctx context.Context, method string) (context.Context, error) {
		caller, err := authenticate(ctx)
		if who, ok := ctx.Value(principalHolderKey{}).(*identity.Principal); ok {
			*who = caller
		}
		if err != nil {
			auditDenial(ctx, log, caller, method, nil, err)
			return nil, err
		}
		return identity.WithPrincipal(ctx, caller), nil
	}
	return interceptor{
		name: "authentication",
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
			return next(srv, &contextStream{ss, ctx})
		},
	}
}

// withPrincipalHolder returns a context and a holder in which authInterceptor stores the principal. The outer
// interceptors read the principal from the holder for the log.
func withPrincipalHolder(ctx context.Context) (context.Context, *identity.Principal) {
	who := &identity.Principal{}
	return context.WithValue(ctx, principalHolderKey{}, who), who
}

type principalHolderKey struct{}

// permissionInterceptor rejects methods that the permission table does not allow the caller (guarantee S2), and all calls of
// a barred caller (guarantee S18). Only the first kind is an ownership violation, because a barred caller may call the
// method at other times. It runs after rateInterceptor, so that rejected calls are rate limited too.
func permissionInterceptor(cfg Config, log *audit.Log, violations *telemetry.Violations) interceptor {
	return newCallInterceptor("permission", func(ctx context.Context, method string, call func(context.Context) error) error {
		caller := identity.PrincipalFromContext(ctx)
		if err := authz.Authorize(method, caller); err != nil {
			auditDenial(ctx, log, caller, method, nil, err)
			return recordDeniedWrite(ctx, violations, caller, method, err)
		}
		if cfg.CheckBarred != nil {
			if err := cfg.CheckBarred(caller, method); err != nil {
				auditDenial(ctx, log, caller, method, nil, err)
				return err
			}
		}
		return call(ctx)
	})
}

// auditDenial records a rejected call in the audit log, with the address of the caller and the object if the
// request was read. It leaves out the reason, which only an operator may set.
func auditDenial(ctx context.Context, log *audit.Log, caller identity.Principal, method string, req any, err error) {
	e := audit.Entry{
		Kind: audit.Denied, Actor: caller.String(), Action: method, Result: resultText(err),
		Facts: map[string]string{"tenant": caller.Tenant, "peer": peerAddress(ctx)},
	}
	e.Object = objectFromRequest(req, e.Facts)
	delete(e.Facts, "reason")
	log.Record(e)
}

// peerAddress returns the network address of the caller.
func peerAddress(ctx context.Context) string {
	if p, ok := peer.FromContext(ctx); ok {
		return p.Addr.String()
	}
	return ""
}

// PrincipalFromCertificate returns the principal that the connection's certificate proves. Without a certificate
// the role is identity.Anybody. It accepts the tenant in the metadata from an orchestrator, and from callers
// without a certificate. A worker proves its tenant by the credential of a turn instead. Modes: user_invalid_input
// for an invalid tenant name.
func PrincipalFromCertificate(ctx context.Context) (identity.Principal, error) {
	tenant, err := tenantFromContext(ctx)
	id, ok := identity.CallerFromContext(ctx)
	switch {
	case !ok:
		id.Role = identity.Anybody
	case id.Role != identity.Orchestrator:
		tenant = identity.DefaultTenant
	}
	return identity.Principal{Role: id.Role, Name: id.Name, Tenant: tenant}, err
}
