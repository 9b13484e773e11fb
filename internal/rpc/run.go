package rpc

import (
	"context"
	"regexp"

	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"
)

// runKey is the metadata of a call that is made for a run.
const runKey = "troupe-root-trace"

var traceIDs = regexp.MustCompile(`^[0-9a-f]{32}$`)

type runValue struct{}

// InRun returns a context whose calls over connections of Dial say for which run they are made:
// the servers log it with each call, so that what processes log of a run is found by one id
// (contract OC-10). It goes over no other connection.
func InRun(ctx context.Context, rootTraceID string) context.Context {
	return context.WithValue(ctx, runValue{}, rootTraceID)
}

// RunOf is the run for which a call came in, as its caller says; empty when it says none.
func RunOf(ctx context.Context) string {
	if ids := metadata.ValueFromIncomingContext(ctx, runKey); len(ids) > 0 && traceIDs.MatchString(ids[0]) {
		return ids[0]
	}
	return ""
}

// told adds the run and the tenant of a context to what its call sends.
func told(ctx context.Context) context.Context {
	if id, _ := ctx.Value(runValue{}).(string); id != "" {
		ctx = metadata.AppendToOutgoingContext(ctx, runKey, id)
	}
	if tenant, _ := ctx.Value(tenantValue{}).(string); tenant != "" {
		ctx = metadata.AppendToOutgoingContext(ctx, tenantKey, tenant)
	}
	return ctx
}

func tellRun(ctx context.Context, method string, req, reply any, conn *grpc.ClientConn, call grpc.UnaryInvoker, opts ...grpc.CallOption) error {
	return call(told(ctx), method, req, reply, conn, opts...)
}

func tellRunOfStream(ctx context.Context, desc *grpc.StreamDesc, conn *grpc.ClientConn, method string, call grpc.Streamer, opts ...grpc.CallOption) (grpc.ClientStream, error) {
	return call(told(ctx), desc, conn, method, opts...)
}
