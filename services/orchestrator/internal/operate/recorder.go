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

// recorder writes the desired state of instances to the registry. A write that failed may have been
// recorded all the same, and a verb that failed must not leave its desire behind. The recorder
// remembers such desires in doubt and replaces them once it sees them. Safe for concurrent use.
type recorder struct {
	state    *desired.State
	registry registry.DesiredStates
	log      *zap.Logger
	wake     chan struct{} // of 1: a desire is in doubt

	mu      sync.Mutex
	inDoubt map[registry.Key]replacement
}

// replacement pairs a desire that must not stay recorded with the desire to record instead.
type replacement struct{ wrong, right registry.DesiredState }

func newRecorder(state *desired.State, r registry.DesiredStates, log *zap.Logger) *recorder {
	return &recorder{state: state, registry: r, log: log, wake: make(chan struct{}, 1), inDoubt: map[registry.Key]replacement{}}
}

// record writes desires to the registry. This orchestrator routes by them when record returns. After an error,
// some of them may be recorded all the same. Those are replaced once they are seen.
func (r *recorder) record(ctx context.Context, desires ...registry.DesiredState) error {
	if len(desires) == 0 {
		return nil
	}
	before := make([]registry.DesiredState, len(desires))
	for i, d := range desires {
		before[i] = r.state.Get(d.Key)
	}
	err := r.registry.SetDesired(ctx, desires...)
	if err == nil {
		r.state.Put(desires...)
		return nil
	}
	for i, d := range desires {
		r.rememberDoubt(d, before[i])
	}
	if ctx.Err() != nil {
		return err
	}
	return failure.New(failure.SystemNetwork, "operate", "the registry does not answer, so no worker was asked; "+
		"what may have been recorded is taken back. Try again when the registry is there").Because(err)
}

// replace records the right desire instead of the wrong one, now or once the registry is back.
func (r *recorder) replace(ctx context.Context, wrong, right registry.DesiredState) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), answerTime)
	defer cancel()
	r.rememberDoubt(wrong, right)
	r.resolve(ctx, wrong.Key)
}

// rememberDoubt stores a desire in doubt, which is replaced when it is seen.
func (r *recorder) rememberDoubt(wrong, right registry.DesiredState) {
	if right.Kind == "" {
		right = runDesire(wrong.Key)
	}
	r.mu.Lock()
	r.inDoubt[wrong.Key] = replacement{wrong, right}
	r.mu.Unlock()
	select {
	case r.wake <- struct{}{}:
	default: // a wake-up is pending
	}
}

// runDesire returns the desired state RUN of an instance.
func runDesire(key registry.Key) registry.DesiredState {
	return registry.DesiredState{Key: key, Kind: registry.Run, Since: time.Now()}
}

// resolve replaces the recorded desire of an instance if it is in doubt. It forgets the doubt when a
// later desire is recorded.
func (r *recorder) resolve(ctx context.Context, key registry.Key) {
	r.mu.Lock()
	d, isInDoubt := r.inDoubt[key]
	r.mu.Unlock()
	recorded := r.state.Get(key)
	switch {
	case !isInDoubt:
		return
	case isSame(recorded, d.wrong):
		if err := r.registry.SetDesired(ctx, d.right); err != nil {
			r.log.Warn("a desired state that is in doubt could not be replaced yet",
				zap.String("agent", key.Agent), zap.String("instance", key.ID), zap.Error(err))
			return
		}
		r.state.Put(d.right)
	case !recorded.Since.After(d.wrong.Since):
		return // it may still show up
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.inDoubt[key] == d {
		delete(r.inDoubt, key)
	}
}

// resolveAll resolves every doubt that can be resolved now.
func (r *recorder) resolveAll(ctx context.Context) {
	r.mu.Lock()
	keys := slices.Collect(maps.Keys(r.inDoubt))
	r.mu.Unlock()
	for _, key := range keys {
		r.resolve(ctx, key)
	}
}

// isSame reports whether two desires of an instance are the same record.
func isSame(a, b registry.DesiredState) bool {
	return a.Kind == b.Kind && a.Reason == b.Reason && a.Since.Equal(b.Since)
}
