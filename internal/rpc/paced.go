package rpc

import (
	"context"

	"google.golang.org/grpc"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/tap"

	"github.com/troupe-dev/troupe/internal/grpcfailure"
	"github.com/troupe-dev/troupe/internal/identity"
	"github.com/troupe-dev/troupe/internal/rate"
	"github.com/troupe-dev/troupe/pkg/failure"
)

// suspect refuses the calls of addresses that failed too often to prove who they are, before
// anybody looks at what they show (guarantees S10).
func suspect(rates *rate.Limiter) link {
	return around("suspect", func(ctx context.Context, _ string, call func(context.Context) error) error {
		from, ok := peer.FromContext(ctx)
		if rates == nil || !ok {
			return call(ctx)
		}
		if err := rates.Tried(from.Addr); err != nil {
			return err
		}
		err := call(ctx)
		if failure.Is(err, failure.UserUnauthenticated) {
			rates.Failed(from.Addr)
		}
		return err
	})
}

// counted refuses calls of an address that begins too many, before there is a goroutine for them:
// who resets them at once, else, has the server work and waits for nothing (guarantees S20).
func counted(rates *rate.Limiter) tap.ServerInHandle {
	return func(ctx context.Context, _ *tap.Info) (context.Context, error) {
		from, ok := peer.FromContext(ctx)
		if !ok {
			return ctx, nil
		}
		return ctx, grpcfailure.ToStatus(rates.Opened(from.Addr))
	}
}

// paced refuses what a caller asks for too often. It comes after known, and asks who calls; those
// that nobody asked for a proof are told apart by their addresses. What a caller may not call
// counts as well.
func paced(rates *rate.Limiter) link {
	return around("paced", func(ctx context.Context, method string, call func(context.Context) error) error {
		if rates != nil {
			caller := identity.PrincipalOf(ctx)
			if from, ok := peer.FromContext(ctx); ok && caller.Role == identity.Anybody {
				if at, ok := rate.Peer(from.Addr); ok {
					caller.Name = at.Addr().String()
				}
			}
			if err := rates.Admit(method, caller); err != nil {
				return err
			}
		}
		return call(ctx)
	})
}

// around is a link that does the same for calls of both shapes, and looks at no message.
func around(name string, do func(ctx context.Context, method string, call func(context.Context) error) error) link {
	return link{
		name: name,
		unary: func(ctx context.Context, req any, info *grpc.UnaryServerInfo, next grpc.UnaryHandler) (resp any, err error) {
			err = do(ctx, info.FullMethod, func(ctx context.Context) (err error) {
				resp, err = next(ctx, req)
				return err
			})
			return resp, err
		},
		stream: func(srv any, ss grpc.ServerStream, info *grpc.StreamServerInfo, next grpc.StreamHandler) error {
			return do(ss.Context(), info.FullMethod, func(context.Context) error { return next(srv, ss) })
		},
	}
}
