package rpc

import (
	"context"

	"google.golang.org/grpc"

	"github.com/troupe-dev/troupe/internal/audit"
	"github.com/troupe-dev/troupe/internal/identity"
	"github.com/troupe-dev/troupe/internal/telemetry"
)

// ScopeChecker checks whether the caller may access the object that a request names. If so, the handler runs with
// the returned context. method is /package.Service/Method. The error is sent to the caller.
type ScopeChecker func(ctx context.Context, method string, req any) (context.Context, error)

// scopeInterceptor rejects requests for an object that the caller may not access (guarantee S5).
func scopeInterceptor(scope ScopeChecker, log *audit.Log, violations *telemetry.Violations) interceptor {
	look := func(ctx context.Context, method string, req any) (context.Context, error) {
		if scope == nil {
			return ctx, nil
		}
		scoped, err := scope(ctx, method, req)
		if err != nil {
			caller := identity.PrincipalFromContext(ctx)
			auditDenial(ctx, log, caller, method, req, err)
			err = recordOutOfScope(ctx, violations, caller, method, err)
		}
		return scoped, err
	}
	return interceptor{
		name: "scope",
		unary: func(ctx context.Context, req any, info *grpc.UnaryServerInfo, next grpc.UnaryHandler) (any, error) {
			ctx, err := look(ctx, info.FullMethod, req)
			if err != nil {
				return nil, err
			}
			return next(ctx, req)
		},
		stream: func(srv any, ss grpc.ServerStream, info *grpc.StreamServerInfo, next grpc.StreamHandler) error {
			return next(srv, &scopedStream{contextStream{ss, ss.Context()}, func(ctx context.Context, req any) (context.Context, error) {
				return look(ctx, info.FullMethod, req)
			}})
		},
	}
}

// scopedStream checks only the first message of a stream, because later messages do not name an object.
type scopedStream struct {
	contextStream
	checkScope func(ctx context.Context, req any) (context.Context, error) // checks the first message (nil after that)
}

func (s *scopedStream) RecvMsg(m any) error {
	err := s.ServerStream.RecvMsg(m)
	if err == nil && s.checkScope != nil {
		s.ctx, err = s.checkScope(s.ctx, m)
		s.checkScope = nil
	}
	return err
}
