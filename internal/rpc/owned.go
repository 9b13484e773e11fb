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

// owned names who tried where a handler refuses a write to state of another owner: not what the
// request says, but who the caller has proven to be (contract SO-12).
func owned(violations *telemetry.Violations) link {
	return link{
		name: "owned",
		unary: func(ctx context.Context, req any, _ *grpc.UnaryServerInfo, next grpc.UnaryHandler) (any, error) {
			resp, err := next(ctx, req)
			return resp, trespassed(ctx, violations, identity.PrincipalOf(ctx), err)
		},
		stream: func(srv any, ss grpc.ServerStream, _ *grpc.StreamServerInfo, next grpc.StreamHandler) error {
			return trespassed(ss.Context(), violations, identity.PrincipalOf(ss.Context()), next(srv, ss))
		},
	}
}

// trespassed is the error of a handler, with its actor if it is a violation, which it tells.
func trespassed(ctx context.Context, violations *telemetry.Violations, caller identity.Principal, err error) error {
	e, ok := errors.AsType[*failure.Error](err)
	if !ok || e.Mode != failure.StateViolation || e.Facts[failure.FactKey] == "" {
		return err
	}
	violation := ownership.Violation(e.Op, e.Facts[failure.FactKey], ownership.Owner(e.Facts[failure.FactOwner]), caller.String()).Because(err)
	record(ctx, violations, caller, violation)
	return violation
}

// trespass is why the table does not let a caller call a method. One that writes state is also a
// violation of its owner's right.
func trespass(ctx context.Context, violations *telemetry.Violations, caller identity.Principal, method string, err error) error {
	key, owner, writes := authz.Writes(method)
	e, ok := errors.AsType[*failure.Error](err)
	if !ok || !writes {
		return err
	}
	e = e.WithOwner(key, string(owner), caller.String())
	record(ctx, violations, caller, e)
	return e
}

// strayed is why a call may not touch what its request names. One that writes there is a violation
// of its owner's right, too, also where the caller is not told that there is such a thing (S5).
func strayed(ctx context.Context, violations *telemetry.Violations, caller identity.Principal, method string, err error) error {
	if failure.Is(err, failure.PolicySecurity) {
		return trespass(ctx, violations, caller, method, err)
	}
	if key, owner, writes := authz.Writes(method); writes && failure.Is(err, failure.NotFound) {
		record(ctx, violations, caller, ownership.Violation("call", key, owner, caller.String()))
	}
	return err
}

func record(ctx context.Context, violations *telemetry.Violations, caller identity.Principal, err error) {
	if of, ok := event.ViolationOf(err); ok {
		facts := map[string]string{"tenant": caller.Tenant}
		if run := RunOf(ctx); run != "" {
			facts["root_trace_id"] = run
		}
		violations.Record(ctx, string(caller.Role), of, facts)
	}
}
