package rpc

import (
	"context"
	"regexp"

	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"
)

// runMetadataKey is the metadata key that carries the run of a call.
const runMetadataKey = "troupe-root-trace"

var traceIDPattern = regexp.MustCompile(`^[0-9a-f]{32}$`)

type runContextKey struct{}

// WithRun returns a context whose calls carry the run as metadata, if they use a connection of Dial. Servers log
// the run with each call, so that one id finds the log lines of all processes (contract OC-10). Other connections
// do not send it.
func WithRun(ctx context.Context, rootTraceID string) context.Context {
	return context.WithValue(ctx, runContextKey{}, rootTraceID)
}

// RunFromContext returns the run in the metadata of an incoming call (empty if there is none).
func RunFromContext(ctx context.Context) string {
	if ids := metadata.ValueFromIncomingContext(ctx, runMetadataKey); len(ids) > 0 && traceIDPattern.MatchString(ids[0]) {
		return ids[0]
	}
	return ""
}

// withCallMetadata adds the run and the tenant of ctx to the metadata of outgoing calls.
func withCallMetadata(ctx context.Context) context.Context {
	if id, _ := ctx.Value(runContextKey{}).(string); id != "" {
		ctx = metadata.AppendToOutgoingContext(ctx, runMetadataKey, id)
	}
	if tenant, _ := ctx.Value(tenantContextKey{}).(string); tenant != "" {
		ctx = metadata.AppendToOutgoingContext(ctx, tenantMetadataKey, tenant)
	}
	return ctx
}

func runUnaryInterceptor(ctx context.Context, method string, req, reply any, conn *grpc.ClientConn, call grpc.UnaryInvoker, opts ...grpc.CallOption) error {
	return call(withCallMetadata(ctx), method, req, reply, conn, opts...)
}

func runStreamInterceptor(ctx context.Context, desc *grpc.StreamDesc, conn *grpc.ClientConn, method string, call grpc.Streamer,
	opts ...grpc.CallOption,
) (grpc.ClientStream, error) {
	return call(withCallMetadata(ctx), desc, conn, method, opts...)
}
