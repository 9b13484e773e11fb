package wire

import (
	"context"

	"google.golang.org/grpc/metadata"

	"github.com/troupe-dev/troupe/internal/identity"
)

// aboveKey is the metadata of a call that is made inside of a turn.
const aboveKey = "troupe-trace-above"

// Above returns a context whose calls say that they are made inside of the turn of a trace:
// an orchestrator that is overloaded does not have a turn wait for which another waits.
func Above(ctx context.Context, traceID string) context.Context {
	return metadata.AppendToOutgoingContext(ctx, aboveKey, traceID)
}

// AboveOf is the trace of the turn that a call was made inside of, as the caller says; empty
// when it was made by itself. Only a worker is believed, which shows the credential of the turn,
// and whoever calls a port that asks nobody who he is.
func AboveOf(ctx context.Context) string {
	role := identity.PrincipalOf(ctx).Role
	if ids := metadata.ValueFromIncomingContext(ctx, aboveKey); len(ids) > 0 && (role == identity.Worker || role == identity.Anybody) {
		return ids[0]
	}
	return ""
}
