package rpc

import (
	"context"
	"slices"
	"strings"

	"google.golang.org/grpc"

	"github.com/troupe-dev/troupe/pkg/failure"
	"github.com/troupe-dev/troupe/pkg/identity"
)

// known refuses calls of processes whose role is none of the given ones: nobody calls what is
// not meant for him (guarantees 4.2).
func known(callers []identity.Role) link {
	var names []string
	for _, role := range callers {
		names = append(names, string(role))
	}
	admit := func(ctx context.Context, method string) error {
		caller, ok := identity.Caller(ctx)
		if ok && slices.Contains(callers, caller.Role) {
			return nil
		}
		return failure.Newf(failure.PolicySecurity, "call", "%s may not call %s, which is for the %s alone", caller, method, strings.Join(names, " and the "))
	}
	return link{
		name: "known",
		unary: func(ctx context.Context, req any, info *grpc.UnaryServerInfo, next grpc.UnaryHandler) (any, error) {
			if err := admit(ctx, info.FullMethod); err != nil {
				return nil, err
			}
			return next(ctx, req)
		},
		stream: func(srv any, ss grpc.ServerStream, info *grpc.StreamServerInfo, next grpc.StreamHandler) error {
			if err := admit(ss.Context(), info.FullMethod); err != nil {
				return err
			}
			return next(srv, ss)
		},
	}
}
