package operate

import (
	"context"
	"maps"
	"slices"
	"sync"
	"time"

	"go.uber.org/zap"

	"github.com/troupe-dev/troupe/internal/registry"
	"github.com/troupe-dev/troupe/pkg/failure"
	"github.com/troupe-dev/troupe/services/orchestrator/internal/routing/desired"
)

// recorder writes the desired states of instances to the registry. A write that failed may have been recorded
// nevertheless. A command that failed must not leave its desired state behind. The recorder keeps such desired
// states in doubt and replaces them once it sees them in the registry. Safe for concurrent use.
type recorder struct {
	state         *desired.State
	desiredStates registry.DesiredStates
	log           *zap.Logger
	wake          chan struct{} // has capacity 1; a value means that a desired state is in doubt

	mu      sync.Mutex
	inDoubt map[registry.Key]doubtfulWrite
}

// doubtfulWrite pairs a desired state that must not stay recorded with the one to record instead.
type doubtfulWrite struct{ wrong, right registry.DesiredState }

func newRecorder(state *desired.State, r registry.DesiredStates, log *zap.Logger) *recorder {
	return &recorder{state: state, desiredStates: r, log: log, wake: make(chan struct{}, 1), inDoubt: map[registry.Key]doubtfulWrite{}}
}

// recordDesired writes desired states to the registry. When it returns, this orchestrator already routes by them.
// After an error, some may have been recorded nevertheless. They are replaced once they are seen.
func (r *recorder) recordDesired(ctx context.Context, desires ...registry.DesiredState) error {
	if len(desires) == 0 {
		return nil
	}
	before := make([]registry.DesiredState, len(desires))
	for i, d := range desires {
		before[i] = r.state.Get(d.Key)
	}
	err := r.desiredStates.SetDesired(ctx, desires...)
	if err == nil {
		r.state.Put(desires...)
		return nil
	}
	for i, d := range desires {
		r.markInDoubt(d, before[i])
	}
	if ctx.Err() != nil {
		return err
	}
	return failure.New(failure.SystemNetwork, "operate", "the registry does not answer, so no worker was asked; "+
		"what may have been recorded is taken back. Try again when the registry is there").Because(err)
}

// replaceDesired records the right desired state in place of the wrong one, either now or when the registry can be
// reached again.
func (r *recorder) replaceDesired(ctx context.Context, wrong, right registry.DesiredState) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), answerTimeout)
	defer cancel()
	r.markInDoubt(wrong, right)
	r.resolveDoubt(ctx, wrong.Key)
}

// markInDoubt marks a desired state as in doubt. It is replaced when it is seen in the registry.
func (r *recorder) markInDoubt(wrong, right registry.DesiredState) {
	if right.Kind == "" {
		right = runState(wrong.Key)
	}
	r.mu.Lock()
	r.inDoubt[wrong.Key] = doubtfulWrite{wrong, right}
	r.mu.Unlock()
	select {
	case r.wake <- struct{}{}:
	default: // a wake-up is pending
	}
}

// runState returns the desired state RUN of an instance.
func runState(key registry.Key) registry.DesiredState {
	return registry.DesiredState{Key: key, Kind: registry.Run, Since: time.Now()}
}

// resolveDoubt replaces the recorded desired state of an instance if it is in doubt. If a later desired state was
// recorded, it only removes the mark.
func (r *recorder) resolveDoubt(ctx context.Context, key registry.Key) {
	r.mu.Lock()
	d, isInDoubt := r.inDoubt[key]
	r.mu.Unlock()
	recorded := r.state.Get(key)
	switch {
	case !isInDoubt:
		return
	case isSameRecord(recorded, d.wrong):
		if err := r.desiredStates.SetDesired(ctx, d.right); err != nil {
			r.log.Warn("a desired state that is in doubt could not be replaced yet",
				zap.String("agent", key.Agent), zap.String("instance", key.ID), zap.Error(err))
			return
		}
		r.state.Put(d.right)
	case !recorded.Since.After(d.wrong.Since):
		return // the write may still appear
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.inDoubt[key] == d {
		delete(r.inDoubt, key)
	}
}

// resolveAllDoubts resolves all desired states in doubt that can be resolved now.
func (r *recorder) resolveAllDoubts(ctx context.Context) {
	r.mu.Lock()
	keys := slices.Collect(maps.Keys(r.inDoubt))
	r.mu.Unlock()
	for _, key := range keys {
		r.resolveDoubt(ctx, key)
	}
}

// isSameRecord reports whether a and b are the same record of an instance's desired state.
func isSameRecord(a, b registry.DesiredState) bool {
	return a.Kind == b.Kind && a.Reason == b.Reason && a.Since.Equal(b.Since)
}
