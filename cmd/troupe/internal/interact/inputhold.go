package interact

import (
	"context"
	"sync/atomic"
)

// inputHold keeps who reads lines from reading what comes behind one: it is a credential, which only
// unseen may read.
type inputHold struct {
	active   atomic.Bool
	released chan struct{}
	pending  bool // a line came behind which nothing is read
}

func newInputHold() *inputHold { return &inputHold{released: make(chan struct{}, 1)} }

// wait returns when lines may be read again; false when there will be none.
func (h *inputHold) wait(ctx context.Context) bool {
	select {
	case <-h.released:
		return true
	case <-ctx.Done():
		return false
	}
}

// received notes a line that was read. Without a hush the next one may be read at once.
func (h *inputHold) received(l line) {
	h.pending = h.pending || l.held
	if !h.active.Load() {
		h.release()
	}
}

// release lets the next line be read.
func (h *inputHold) release() {
	if h.pending {
		h.pending = false
		h.released <- struct{}{}
	}
}
