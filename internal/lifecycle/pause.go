package lifecycle

import (
	"context"

	"github.com/troupe-dev/troupe/pkg/failure"
)

// pendingPause is a Pause that waits for the running steps. Every Pause call that arrives while steps run joins
// it.
type pendingPause struct {
	waitingCallers int // number of waiting Pause calls
	done           chan struct{}
	err            error // valid once done is closed (nil means that PAUSED was reached)
}

// endPause ends the pending pause, if there is one. The caller must hold the lock and notify the watchers.
func (i *Instance) endPause(err error) {
	if i.pause == nil {
		return
	}
	i.pause.err = err
	close(i.pause.done)
	i.pause, i.record.Pausing = nil, false
}

// Pause closes admission and returns once the instance is PAUSED. While steps run it waits for them, and
// concurrent calls join it. It does nothing before READY and if the instance is already PAUSED.
//
// If ctx ends first, Pause fails with agent_timeout, and admission reopens unless another call still waits. Pause
// fails with agent_state after a Shutdown, and if a Resume or a Shutdown arrives while it waits.
func (i *Instance) Pause(ctx context.Context, reason string) error {
	p, err := i.beginPause(ctx, reason)
	if p == nil {
		return err
	}
	select {
	case <-p.done:
		return p.err
	case <-ctx.Done():
	}
	i.mu.Lock()
	defer i.mu.Unlock()
	p.waitingCallers--
	message := "running steps did not end within the caller's deadline; another Pause still waits for them"
	switch {
	case i.pause != p: // the pause ended at the same moment
		return p.err
	case p.waitingCallers == 0:
		message = "running steps did not end within the caller's deadline; admission is open again"
		i.endPause(nil)
		i.record.Reason = ""
		i.record.notifyWatchers()
	}
	return failure.New(failure.AgentTimeout, "lifecycle.Pause", message).Because(ctx.Err())
}

// beginPause pauses an idle instance at once. If steps are running, it returns the pending pause to wait for.
func (i *Instance) beginPause(ctx context.Context, reason string) (*pendingPause, error) {
	i.mu.Lock()
	defer i.mu.Unlock()
	if err := i.checkVersion(ctx, "Pause"); err != nil {
		return nil, err
	}
	switch i.record.State {
	case ShuttingDown, Terminated:
		return nil, newWrongStateError("Pause", i.record.State, Ready, Busy)
	case Ready:
		i.record.transition(ctx, Paused, reason)
		return nil, nil //nolint:nilnil // it is done
	case Busy:
		if i.pause == nil {
			i.pause = &pendingPause{done: make(chan struct{})}
			i.record.Pausing, i.record.Reason = true, reason
			i.record.notifyWatchers()
		}
		i.pause.waitingCallers++
		return i.pause, nil
	default:
		return nil, nil //nolint:nilnil // there is nothing to do
	}
}

// Resume reopens admission. In PAUSED it changes the state to READY, and while a Pause waits it withdraws that
// Pause. Otherwise it does nothing. After Shutdown it fails with agent_state.
func (i *Instance) Resume(ctx context.Context, reason string) error {
	i.mu.Lock()
	defer i.mu.Unlock()
	if err := i.checkVersion(ctx, "Resume"); err != nil {
		return err
	}
	switch {
	case i.record.State == ShuttingDown || i.record.State == Terminated:
		return newWrongStateError("Resume", i.record.State, Paused)
	case i.record.State == Paused:
		i.record.transition(ctx, Ready, reason)
	case i.pause != nil:
		i.endPause(failure.New(failure.AgentState, "lifecycle.Pause", "a Resume withdrew the pause"))
		i.record.Reason = reason
		i.record.notifyWatchers()
	}
	return nil
}
