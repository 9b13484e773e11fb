package wire

import (
	"context"

	"google.golang.org/grpc/metadata"
)

// aboveKey is the metadata of a call that is made inside of a turn.
const aboveKey = "troupe-trace-above"

// Above returns a context whose calls say that they are made inside of the turn of a trace:
// an orchestrator that is overloaded does not have a turn wait for which another waits.
func Above(ctx context.Context, traceID string) context.Context {
	return metadata.AppendToOutgoingContext(ctx, aboveKey, traceID)
}

// AboveOf is the trace of the turn that a call was made inside of, as the caller says; empty
// when it was made by itself.
func AboveOf(ctx context.Context) string {
	if ids := metadata.ValueFromIncomingContext(ctx, aboveKey); len(ids) > 0 {
		return ids[0]
	}
	return ""
}
