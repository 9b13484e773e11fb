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
		r.desires[d.Key] = d
	}
	r.desiresChanged()
	return nil
}

// RemoveDesired implements registry.DesiredStates. It never blocks.
func (r *Registry) Forget(ctx context.Context, key registry.Key) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if _, registered := r.instances[key]; !registered {
		delete(r.desires, key)
		r.desiresChanged()
	}
	return nil
}

// WatchDesiredStates implements registry.DesiredStates.
func (r *Registry) WatchDesires(ctx context.Context, apply func(map[registry.Key]registry.DesiredState)) error {
	for ctx.Err() == nil {
		r.mu.Lock()
		all, changed := maps.Clone(r.desires), r.desired
		r.mu.Unlock()
		apply(all)
		select {
		case <-changed:
		case <-ctx.Done():
		}
	}
	return nil
}

func (r *Registry) desiresChanged() {
	close(r.desired)
	r.desired = make(chan struct{})
}
