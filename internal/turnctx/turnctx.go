// Package turnctx carries the metadata of calls for a turn: the credential of the step and the trace of the parent
// turn. Package turncred verifies both.
package turnctx

import (
	"context"
	"crypto/sha256"
	"encoding/hex"

	"google.golang.org/grpc/metadata"
)

// The metadata keys of a call. Each may have one value.
const (
	CredentialKey  = "troupe-turn"
	ParentTraceKey = "troupe-parent-trace"
)

type credentialKey struct{}

// WithCredential returns a context in which a step runs. Calls for the step, to the memory service and for remote
// agents, show the credential by Outgoing. No other call carries it.
func WithCredential(ctx context.Context, credential string) context.Context {
	return context.WithValue(ctx, credentialKey{}, credential)
}

// Outgoing returns a context whose gRPC calls show the credential of the step (ctx itself when it has none).
func Outgoing(ctx context.Context) context.Context {
	if credential, _ := ctx.Value(credentialKey{}).(string); credential != "" {
		return metadata.AppendToOutgoingContext(ctx, CredentialKey, credential)
	}
	return ctx
}

// WithParentTrace returns a context whose gRPC calls name the trace of the turn that makes them. An overloaded
// orchestrator does not queue such a turn, because its parent waits for it.
func WithParentTrace(ctx context.Context, traceID string) context.Context {
	return metadata.AppendToOutgoingContext(ctx, ParentTraceKey, traceID)
}

// ChildSessionPrefix returns the beginning of the ids of all sessions in which remote agents work for a session.
// The rest of such an id says for which call.
func ChildSessionPrefix(session string) string {
	sum := sha256.Sum256([]byte(session))
	return "sub-" + hex.EncodeToString(sum[:12]) + "-"
}
