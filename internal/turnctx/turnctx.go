// Package turnctx adds the metadata of a turn to gRPC calls: the credential of the step and the trace of the
// parent turn. Package turncred verifies both on the server.
package turnctx

import (
	"context"
	"crypto/sha256"
	"encoding/hex"

	"google.golang.org/grpc/metadata"
)

// These are the metadata keys of a call. Each may have only one value.
const (
	CredentialKey  = "troupe-turn"
	ParentTraceKey = "troupe-parent-trace"
)

type credentialKey struct{}

// WithCredential returns the context in which a step runs. Only calls for the step, to the memory service and for
// remote agents, use WithOutgoingCredential and so carry the credential.
func WithCredential(ctx context.Context, credential string) context.Context {
	return context.WithValue(ctx, credentialKey{}, credential)
}

// WithOutgoingCredential returns a context whose gRPC calls carry the credential of the step. It returns ctx
// itself if ctx has no credential.
func WithOutgoingCredential(ctx context.Context) context.Context {
	if credential, _ := ctx.Value(credentialKey{}).(string); credential != "" {
		return metadata.AppendToOutgoingContext(ctx, CredentialKey, credential)
	}
	return ctx
}

// WithParentTrace returns a context whose gRPC calls carry the trace id of the calling turn. An overloaded
// orchestrator does not queue such a call, because the parent turn waits for it.
func WithParentTrace(ctx context.Context, traceID string) context.Context {
	return metadata.AppendToOutgoingContext(ctx, ParentTraceKey, traceID)
}

// ChildSessionPrefix returns the common prefix of the ids of all child sessions of a session. Remote agents work
// in child sessions. The rest of the id identifies the call.
func ChildSessionPrefix(session string) string {
	sum := sha256.Sum256([]byte(session))
	return "sub-" + hex.EncodeToString(sum[:12]) + "-"
}
