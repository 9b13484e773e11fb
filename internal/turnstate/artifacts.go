package turnstate

import (
	"context"
	"maps"
	"sync"

	"github.com/troupe-dev/troupe/internal/statechange"
	"github.com/troupe-dev/troupe/pkg/event"
)

// Artifacts follows the artifacts that a turn or a tool writes. The zero Artifacts is ready for use. It is safe for
// concurrent use.
type Artifacts struct {
	mu        sync.Mutex
	growing   Growing                    // artifacts that are written in pieces
	unemitted map[string]int             // saved versions that no message contains yet, by name
	report    func(event.ArtifactUpdate) // (nil ignores updates)
}

// SaveArtifact stores the content of an artifact and returns its version.
type SaveArtifact = func(ctx context.Context, name, mediaType string, content []byte) (version int, err error)

// Save stores content with save, and then reports that the artifact is complete.
func (a *Artifacts) Save(ctx context.Context, save SaveArtifact, name, mediaType string, content []byte) (int, error) {
	return a.complete(ctx, save, event.ArtifactUpdate{Name: name, MediaType: mediaType, Size: int64(len(content)), Complete: true}, content)
}

// Append adds a piece to an artifact, and reports it when an update is due. The last piece stores the artifact with save.
func (a *Artifacts) Append(ctx context.Context, save SaveArtifact, name, mediaType string, piece []byte, last bool) (int, error) {
	a.mu.Lock()
	update, content, err := a.growing.Append(name, mediaType, piece, last)
	if update != nil && !last && a.report != nil {
		a.report(*update)
	}
	a.mu.Unlock()
	if err != nil || !last {
		return 0, err
	}
	return a.complete(ctx, save, *update, content)
}

func (a *Artifacts) complete(ctx context.Context, save SaveArtifact, update event.ArtifactUpdate, content []byte) (version int, err error) {
	if update.Version, err = save(ctx, update.Name, update.MediaType, content); err != nil {
		return 0, err
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	statechange.Collect(&a.unemitted, map[string]int{update.Name: update.Version})
	if a.report != nil {
		a.report(update)
	}
	return update.Version, nil
}

// Fork returns an Artifacts of its own for a tool or an agent that runs concurrently. It reports to the same function.
func (a *Artifacts) Fork() *Artifacts {
	a.mu.Lock()
	defer a.mu.Unlock()
	return &Artifacts{report: a.report}
}

// Join adds the versions that a fork has saved.
func (a *Artifacts) Join(fork *Artifacts) {
	fork.mu.Lock()
	saved := maps.Clone(fork.unemitted)
	fork.mu.Unlock()
	a.mu.Lock()
	defer a.mu.Unlock()
	statechange.Collect(&a.unemitted, saved)
}

// TakeUnemitted returns the versions that no message contains yet. It returns each version once.
func (a *Artifacts) TakeUnemitted() map[string]int {
	a.mu.Lock()
	defer a.mu.Unlock()
	saved := a.unemitted
	a.unemitted = nil
	return saved
}

// SetReporter sets the function that gets the updates, unless there is one.
func (a *Artifacts) SetReporter(report func(event.ArtifactUpdate)) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.report == nil {
		a.report = report
	}
}
