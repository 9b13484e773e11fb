package interact

import (
	"context"
	"sync/atomic"
)

// inputHold stops the reader of lines after a line, so that the credential on the next line is read only by
// ReadHidden.
type inputHold struct {
	active   atomic.Bool
	released chan struct{}
	pending  bool // a line came after which reading stops
}

func newInputHold() *inputHold { return &inputHold{released: make(chan struct{}, 1)} }

// wait returns when reading may continue. It returns false when ctx has ended.
func (h *inputHold) wait(ctx context.Context) bool {
	select {
	case <-h.released:
		return true
	case <-ctx.Done():
		return false
	}
}

// recordLine records a line that was read. Without an active hold the next line may be read at once.
func (h *inputHold) recordLine(l line) {
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
