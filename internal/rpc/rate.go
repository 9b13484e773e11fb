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

// authFailureInterceptor rejects calls from addresses that failed to authenticate too often. It does so before it
// checks their credentials, and counts each failure (guarantee S10).
func authFailureInterceptor(rates *rate.Limiter) interceptor {
	return newCallInterceptor("failed authentication", func(ctx context.Context, _ string, call func(context.Context) error) error {
		from, ok := peer.FromContext(ctx)
		if rates == nil || !ok {
			return call(ctx)
		}
		if err := rates.CheckFailures(from.Addr); err != nil {
			return err
		}
		err := call(ctx)
		if failure.Is(err, failure.UserUnauthenticated) {
			rates.CountFailure(from.Addr)
		}
		return err
	})
}

// streamRateTap rejects calls from an address that starts too many, before they get a goroutine. Otherwise a
// client could keep the server busy by resetting each stream at once (guarantee S20).
func streamRateTap(rates *rate.Limiter) tap.ServerInHandle {
	return func(ctx context.Context, _ *tap.Info) (context.Context, error) {
		from, ok := peer.FromContext(ctx)
		if !ok {
			return ctx, nil
		}
		return ctx, grpcfailure.ToStatus(rates.CountCall(from.Addr))
	}
}

// rateInterceptor limits the rate of calls of each caller. It distinguishes callers without an identity by their
// addresses. Calls that the caller may not make count as well.
func rateInterceptor(rates *rate.Limiter) interceptor {
	return newCallInterceptor("rate", func(ctx context.Context, method string, call func(context.Context) error) error {
		if rates != nil {
			caller := identity.PrincipalFromContext(ctx)
			if from, ok := peer.FromContext(ctx); ok && caller.Role == identity.Anybody {
				if at, ok := rate.PeerPrefix(from.Addr); ok {
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

// newCallInterceptor returns an interceptor that runs do around each call, unary or streaming. do cannot see the
// messages.
func newCallInterceptor(name string, do func(ctx context.Context, method string, call func(context.Context) error) error) interceptor {
	return interceptor{
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
