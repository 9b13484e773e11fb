package memory

import "context"

// Holder is a worker whom a store serves in a step of a turn, as its credential proves.
type Holder struct {
	Hold
	Step int // number of the step; 0: of none, and then nothing is over for it before the turn is
}

type holderKey struct{}

// Under returns a context whose calls are those of a holder. What it reads of the session it reads as
// long as its turn is open under its epoch: later that fails with fenced or turn_not_open, as its writes
// do. And once its step is committed they fail with turn_not_open, in whatever step the turn is. Only
// stores that take such calls from elsewhere look at it.
func Under(ctx context.Context, h Holder) context.Context {
	return context.WithValue(ctx, holderKey{}, h)
}

// HolderOf is for whom a context calls; the zero Holder for nobody in particular, who may do all.
func HolderOf(ctx context.Context) Holder {
	h, _ := ctx.Value(holderKey{}).(Holder)
	return h
}
