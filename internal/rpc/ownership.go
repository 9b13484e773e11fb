package rpc

import (
	"context"
	"errors"

	"google.golang.org/grpc"

	"github.com/troupe-dev/troupe/internal/authz"
	"github.com/troupe-dev/troupe/internal/identity"
	"github.com/troupe-dev/troupe/internal/telemetry"
	"github.com/troupe-dev/troupe/pkg/event"
	"github.com/troupe-dev/troupe/pkg/failure"
	"github.com/troupe-dev/troupe/pkg/ownership"
)

// ownershipInterceptor records rejected writes to state of another owner. The recorded actor is the authenticated
// caller, not what the request says (contract SO-12).
func ownershipInterceptor(violations *telemetry.Violations) interceptor {
	return interceptor{
		name: "ownership",
		unary: func(ctx context.Context, req any, _ *grpc.UnaryServerInfo, next grpc.UnaryHandler) (any, error) {
			resp, err := next(ctx, req)
			return resp, recordHandlerViolation(ctx, violations, identity.PrincipalFromContext(ctx), err)
		},
		stream: func(srv any, ss grpc.ServerStream, _ *grpc.StreamServerInfo, next grpc.StreamHandler) error {
			return recordHandlerViolation(ss.Context(), violations, identity.PrincipalFromContext(ss.Context()), next(srv, ss))
		},
	}
}

// recordHandlerViolation returns the error of a handler. If the error is an ownership violation, it sets the actor
// to the caller and records the violation.
func recordHandlerViolation(ctx context.Context, violations *telemetry.Violations, caller identity.Principal, err error) error {
	e, ok := errors.AsType[*failure.Error](err)
	if !ok || e.Mode != failure.StateViolation || e.Facts[failure.FactKey] == "" {
		return err
	}
	violation := ownership.NewViolationError(e.Op, e.Facts[failure.FactKey], ownership.Owner(e.Facts[failure.FactOwner]), caller.String()).Because(err)
	recordViolation(ctx, violations, caller, violation)
	return violation
}

// recordDeniedWrite returns the error for a method that the caller may not call. If the method writes state, it
// also records an ownership violation.
func recordDeniedWrite(ctx context.Context, violations *telemetry.Violations, caller identity.Principal, method string, err error) error {
	key, owner, writes := authz.WrittenState(method)
	e, ok := errors.AsType[*failure.Error](err)
	if !ok || !writes {
		return err
	}
	e = e.WithOwner(key, string(owner), caller.String())
	recordViolation(ctx, violations, caller, e)
	return e
}

// recordOutOfScope returns the error for a request whose object the caller may not access. If the method writes,
// it also records an ownership violation, even if the caller is only told that the object was not found (guarantee S5).
func recordOutOfScope(ctx context.Context, violations *telemetry.Violations, caller identity.Principal, method string, err error) error {
	if failure.Is(err, failure.PolicySecurity) {
		return recordDeniedWrite(ctx, violations, caller, method, err)
	}
	if key, owner, writes := authz.WrittenState(method); writes && failure.Is(err, failure.NotFound) {
		recordViolation(ctx, violations, caller, ownership.NewViolationError("call", key, owner, caller.String()))
	}
	return err
}

func recordViolation(ctx context.Context, violations *telemetry.Violations, caller identity.Principal, err error) {
	if of, ok := event.ViolationFromError(err); ok {
		facts := map[string]string{"tenant": caller.Tenant}
		if run := RunFromContext(ctx); run != "" {
			facts["root_trace_id"] = run
		}
		violations.Record(ctx, string(caller.Role), of, facts)
	}
}
