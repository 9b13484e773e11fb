package interact

import (
	"context"
	"sync/atomic"
)

// inputHold pauses readLines after one line, so that only ReadHidden can read the credential on the next line.
type inputHold struct {
	active         atomic.Bool
	released       chan struct{}
	hasPendingLine bool // the last line paused readLines
}

func newInputHold() *inputHold { return &inputHold{released: make(chan struct{}, 1)} }

// wait blocks until readLines may continue. It returns false if ctx ends first.
func (h *inputHold) wait(ctx context.Context) bool {
	select {
	case <-h.released:
		return true
	case <-ctx.Done():
		return false
	}
}

// recordLine records that the chat received a line. If the hold is not active, readLines continues at once.
func (h *inputHold) recordLine(l inputLine) {
	h.hasPendingLine = h.hasPendingLine || l.stopsReading
	if !h.active.Load() {
		h.release()
	}
}

// release lets readLines read the next line.
func (h *inputHold) release() {
	if h.hasPendingLine {
		h.hasPendingLine = false
		h.released <- struct{}{}
	}
}
