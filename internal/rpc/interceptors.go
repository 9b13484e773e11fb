package rpc

import (
	"context"
	"time"

	"buf.build/go/protovalidate"
	"github.com/grpc-ecosystem/go-grpc-middleware/v2/interceptors/recovery"
	"go.uber.org/zap"
	"google.golang.org/grpc"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"

	"github.com/troupe-dev/troupe/internal/grpcfailure"
	"github.com/troupe-dev/troupe/internal/identity"
	"github.com/troupe-dev/troupe/internal/panics"
	"github.com/troupe-dev/troupe/internal/telemetry"
	"github.com/troupe-dev/troupe/pkg/failure"
)

// interceptor is a server interceptor for unary and for streaming calls. Both functions are declared together so
// that the two chains cannot differ.
type interceptor struct {
	name   string
	unary  grpc.UnaryServerInterceptor
	stream grpc.StreamServerInterceptor
}

// newChain returns the interceptors of every server, outermost first. Calling draining ends the health watches,
// which would otherwise never end.
func newChain(t *telemetry.Telemetry, cfg Config) (chain []interceptor, draining context.CancelFunc, err error) {
	violations, err := t.Violations()
	if err != nil {
		return nil, nil, err
	}
	ctx, draining := context.WithCancel(context.Background())
	// Authentication comes before anything that reads the request. Rate limits come before permissions, because
	// rejected calls could otherwise fill the audit log.
	return []interceptor{
		outermostInterceptor(t, cfg.IsExpectedError), panicInterceptor(), healthWatchInterceptor(ctx),
		authFailureInterceptor(cfg.Rates), authInterceptor(cfg, t.Audit), rateInterceptor(cfg.Rates), permissionInterceptor(cfg, t.Audit, violations),
		ownershipInterceptor(violations), auditInterceptor(t.Audit, cfg.Instance), validationInterceptor(protovalidate.GlobalValidator),
		scopeInterceptor(cfg.Scope, t.Audit, violations),
	}, draining, nil
}

func serverOptions(chain []interceptor) []grpc.ServerOption {
	var u []grpc.UnaryServerInterceptor
	var s []grpc.StreamServerInterceptor
	for _, l := range chain {
		u, s = append(u, l.unary), append(s, l.stream)
	}
	return []grpc.ServerOption{grpc.ChainUnaryInterceptor(u...), grpc.ChainStreamInterceptor(s...)}
}

// outermostInterceptor logs each call once, with the whole cause of an error, and converts the error to the part
// that the caller may see. It does not log health checks.
func outermostInterceptor(t *telemetry.Telemetry, usual func(method string, err error) bool) interceptor {
	log := t.Log
	finish := func(ctx context.Context, who *identity.Principal, method string, start time.Time, err error) error {
		fields := []zap.Field{zap.String("method", method), zap.Duration("duration", time.Since(start))}
		if run := RunFromContext(ctx); run != "" {
			fields = append(fields, zap.String("root_trace_id", run))
		}
		if caller, ok := identity.CallerFromContext(ctx); ok {
			fields = append(fields, zap.Stringer("caller", caller))
		} else if who.Role != "" && who.Role != identity.Anybody {
			fields = append(fields, zap.Stringer("caller", who), zap.String("tenant", who.Tenant))
		}
		switch {
		case err == nil:
			log.Debug("call", fields...)
		case failure.ModeOf(err) == failure.Unknown:
			log.Error("call failed", append(fields, zap.Error(err))...)
		case usual != nil && usual(method, err):
			log.Debug("call rejected", append(fields, zap.Error(err))...)
		default:
			log.Info("call rejected", append(fields, zap.Error(err))...)
		}
		t.Panics.Record(ctx, err)
		return grpcfailure.ToStatus(err)
	}
	return interceptor{
		name: "edge",
		unary: func(ctx context.Context, req any, info *grpc.UnaryServerInfo, next grpc.UnaryHandler) (any, error) {
			start := time.Now()
			ctx, who := withPrincipalHolder(ctx)
			resp, err := next(ctx, req)
			if info.FullMethod == healthpb.Health_Check_FullMethodName {
				return resp, grpcfailure.ToStatus(err) // not logged, because health checks come every few seconds
			}
			return resp, finish(ctx, who, info.FullMethod, start, err)
		},
		stream: func(srv any, ss grpc.ServerStream, info *grpc.StreamServerInfo, next grpc.StreamHandler) error {
			start := time.Now()
			ctx, who := withPrincipalHolder(ss.Context())
			return finish(ctx, who, info.FullMethod, start, next(srv, &contextStream{ss, ctx}))
		},
	}
}

// panicInterceptor converts a panic of a handler to an error that tells the caller nothing about it.
func panicInterceptor() interceptor {
	option := recovery.WithRecoveryHandlerContext(func(_ context.Context, p any) error {
		return panics.NewError("call", p)
	})
	return interceptor{
		name:   "panic",
		unary:  recovery.UnaryServerInterceptor(option),
		stream: recovery.StreamServerInterceptor(option),
	}
}

// healthWatchInterceptor cancels health watches when the server drains, because they would delay every stop.
func healthWatchInterceptor(draining context.Context) interceptor {
	return interceptor{
		name: "health watch",
		unary: func(ctx context.Context, req any, _ *grpc.UnaryServerInfo, next grpc.UnaryHandler) (any, error) {
			return next(ctx, req)
		},
		stream: func(srv any, ss grpc.ServerStream, info *grpc.StreamServerInfo, next grpc.StreamHandler) error {
			if info.FullMethod != healthpb.Health_Watch_FullMethodName {
				return next(srv, ss)
			}
			ctx, cancel := context.WithCancel(ss.Context())
			defer cancel()
			defer context.AfterFunc(draining, cancel)()
			return next(srv, &contextStream{ss, ctx})
		},
	}
}

type contextStream struct {
	grpc.ServerStream
	ctx context.Context //nolint:containedctx // a stream returns its context, and this type replaces it
}

func (s *contextStream) Context() context.Context { return s.ctx }
