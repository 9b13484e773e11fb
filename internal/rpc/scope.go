package rpc

import (
	"context"

	"google.golang.org/grpc"

	"github.com/troupe-dev/troupe/internal/audit"
	"github.com/troupe-dev/troupe/internal/identity"
	"github.com/troupe-dev/troupe/internal/telemetry"
)

// Scope says why a call of the context's principal must not touch what its request names; nil: it
// may, and its handler runs under the context that is returned. Method is /package.Service/Method. Its
// errors go to the caller.
type Scope func(ctx context.Context, method string, req any) (context.Context, error)

// scoped lets no request reach a handler that names what is not its caller's (guarantees S5).
func scoped(scope Scope, log *audit.Log, violations *telemetry.Violations) link {
	look := func(ctx context.Context, method string, req any) (context.Context, error) {
		if scope == nil {
			return ctx, nil
		}
		scoped, err := scope(ctx, method, req)
		if err != nil {
			caller := identity.PrincipalOf(ctx)
			refused(ctx, log, caller, method, req, err)
			err = strayed(ctx, violations, caller, method, err)
		}
		return scoped, err
	}
	return link{
		name: "scoped",
		unary: func(ctx context.Context, req any, info *grpc.UnaryServerInfo, next grpc.UnaryHandler) (any, error) {
			ctx, err := look(ctx, info.FullMethod, req)
			if err != nil {
				return nil, err
			}
			return next(ctx, req)
		},
		stream: func(srv any, ss grpc.ServerStream, info *grpc.StreamServerInfo, next grpc.StreamHandler) error {
			return next(srv, &scopedStream{boundStream{ss, ss.Context()}, func(ctx context.Context, req any) (context.Context, error) {
				return look(ctx, info.FullMethod, req)
			}})
		},
	}
}

// scopedStream looks at the first message that comes. What comes behind it says nothing of what is
// touched.
type scopedStream struct {
	boundStream
	look func(ctx context.Context, req any) (context.Context, error) // nil once it did
}

func (s *scopedStream) RecvMsg(m any) error {
	err := s.ServerStream.RecvMsg(m)
	if err == nil && s.look != nil {
		s.ctx, err = s.look(s.ctx, m)
		s.look = nil
	}
	return err
}
