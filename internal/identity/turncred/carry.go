package turncred

import (
	"context"

	"google.golang.org/grpc/metadata"
)

// Metadata is the key under which a call shows its credential. There may be one value.
const Metadata = "troupe-turn"

type carried struct{}

// With returns a context in which calls are made for a step: those to the memory service, and
// those for a remote agent, show its credential by Shown. No other call has it.
func With(ctx context.Context, credential string) context.Context {
	return context.WithValue(ctx, carried{}, credential)
}

// Shown returns a context whose gRPC calls show the credential of the step; the same one, when
// there is none.
func Shown(ctx context.Context) context.Context {
	if credential, _ := ctx.Value(carried{}).(string); credential != "" {
		return metadata.AppendToOutgoingContext(ctx, Metadata, credential)
	}
	return ctx
}

// shown is what the caller of a call showed, and whether it showed something.
func shown(ctx context.Context) (string, bool) {
	values := metadata.ValueFromIncomingContext(ctx, Metadata)
	switch len(values) {
	case 0:
		return "", false
	case 1:
		return values[0], true
	default:
		return "", true // which proves nothing
	}
}

// Of returns the turn for which a call was made, and whether it shows one. Modes: those of Verify.
func (a *Authority) Of(ctx context.Context) (Turn, bool, error) {
	credential, ok := shown(ctx)
	if a == nil || !ok {
		return Turn{}, false, nil
	}
	t, err := a.Verify(credential)
	return t, true, err
}
