package inmem

import (
	"context"
	"maps"

	"github.com/troupe-dev/troupe/internal/registry"
)

// SetDesired implements registry.DesiredStates. It never blocks.
func (r *Registry) SetDesired(ctx context.Context, desires ...registry.DesiredState) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, d := range desires {
		r.desiredStates[d.Key] = d
	}
	r.notifyDesired()
	return nil
}

// RemoveDesired implements registry.DesiredStates. It never blocks.
func (r *Registry) RemoveDesired(ctx context.Context, key registry.Key) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if _, registered := r.instances[key]; !registered {
		delete(r.desiredStates, key)
		r.notifyDesired()
	}
	return nil
}

// WatchDesiredStates implements registry.DesiredStates.
func (r *Registry) WatchDesiredStates(ctx context.Context, apply func(map[registry.Key]registry.DesiredState)) error {
	for ctx.Err() == nil {
		r.mu.Lock()
		all, changed := maps.Clone(r.desiredStates), r.desiredChanged
		r.mu.Unlock()
		apply(all)
		select {
		case <-changed:
		case <-ctx.Done():
		}
	}
	return nil
}

func (r *Registry) notifyDesired() {
	close(r.desiredChanged)
	r.desiredChanged = make(chan struct{})
}
