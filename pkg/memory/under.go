package memory

import "context"

type epochKey struct{}

// Under returns a context whose reads of one session are those of the holder of an epoch: when a later
// one was granted they fail with fenced, as its writes do. Only stores that take them from elsewhere
// look at it.
func Under(ctx context.Context, epoch int64) context.Context {
	return context.WithValue(ctx, epochKey{}, epoch)
}

// EpochOf is the epoch under which a context reads; 0: any.
func EpochOf(ctx context.Context) int64 {
	epoch, _ := ctx.Value(epochKey{}).(int64)
	return epoch
}
