package agent

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/troupe-dev/troupe/internal/retry"
	"github.com/troupe-dev/troupe/internal/storeerror"
	"github.com/troupe-dev/troupe/pkg/conversation"
	"github.com/troupe-dev/troupe/pkg/failure"
	"github.com/troupe-dev/troupe/pkg/hook"
	"github.com/troupe-dev/troupe/pkg/memory"
)

// buffer is what a turn reaches of the MEMORY tier while nothing is written: what is stored,
// and above it what the turns that are not saved yet have changed.
type buffer struct {
	s  *Session
	ep *episode
	mu sync.Mutex // guards the files of the episode: tools may run beside each other
}

// file is an artifact that is not stored yet.
type file struct {
	memory.Artifact
	content []byte // not nil
}

// State implements hook.Store.
func (b *buffer) State(ctx context.Context) (map[string]json.RawMessage, string, error) {
	snapshot, err := retry.Do(ctx, func(ctx context.Context) (memory.Snapshot, error) {
		return b.s.cfg.Store.GetState(ctx, b.s.ref)
	})
	if err != nil && !failure.Is(err, failure.NotFound) { // the session may not be stored yet
		return nil, "", err
	}
	state, source := maps.Clone(snapshot.Values), snapshot.Untrusted
	if state == nil {
		state = map[string]json.RawMessage{}
	}
	for _, ep := range b.s.unsaved {
		maps.Copy(state, ep.state) // an empty value removes
		source = conversation.Gravest(source, conversation.Untrusted(ep.all()), ep.result.Untrusted)
	}
	return state, source, nil
}

// SaveArtifact implements hook.Store. The version of an artifact of the user is a guess:
// another session may store one before this one is saved.
func (b *buffer) SaveArtifact(ctx context.Context, name, mediaType string, content []byte) (int, error) {
	const op = "agent.SaveArtifact"
	if err := memory.CheckArtifactName(op, name); err != nil {
		return 0, err
	}
	if memory.ScopeOf(name) == memory.ScopeUser && b.s.cfg.User == "" {
		return 0, storeerror.NoUser(op, b.s.ref, name)
	}
	if len(content) > memory.MaxArtifactBytes {
		return 0, failure.Newf(failure.UserInvalidInput, op, "artifact %q: %d bytes are too many; an artifact has at most %d", name,
			len(content), memory.MaxArtifactBytes)
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	sum := sha256.Sum256(content)
	next := memory.Artifact{
		Content: memory.Content{SHA256: hex.EncodeToString(sum[:]), Size: int64(len(content))},
		Name:    name, MediaType: mediaType, Turn: b.ep.id, Created: time.Now(),
	}
	latest, err := b.find(ctx, name, 0)
	if err != nil && !failure.Is(err, failure.NotFound) {
		return 0, err
	}
	if err == nil && latest.Content == next.Content {
		return latest.Version, nil
	}
	next.Version = latest.Version + 1
	b.ep.files = append(b.ep.files, file{next, append([]byte{}, content...)})
	return next.Version, nil
}

// LoadArtifact implements hook.Store.
func (b *buffer) LoadArtifact(ctx context.Context, name string, version int) ([]byte, string, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	f, err := b.find(ctx, name, version)
	if err != nil {
		return nil, "", err
	}
	if f.content != nil {
		return bytes.Clone(f.content), f.MediaType, nil
	}
	return b.store().LoadArtifact(ctx, name, f.Version)
}

// Search implements hook.Store.
func (b *buffer) Search(ctx context.Context, query string, limit int) ([]hook.Found, error) {
	return b.store().Search(ctx, query, limit)
}

// store is what is stored. The buffer only reads it, and so needs no hold.
func (b *buffer) store() hook.Store {
	return Remember(b.s.cfg.Store, memory.Lease{Ref: b.s.ref}, b.s.cfg.User)
}

// find returns a version of an artifact, 0 for the latest; without content when it is stored.
func (b *buffer) find(ctx context.Context, name string, version int) (file, error) {
	files := b.ep.files
	for i := len(b.s.unsaved); ; i-- {
		for _, f := range slices.Backward(files) {
			if f.Name == name && (version == 0 || version == f.Version) {
				return f, nil
			}
		}
		if i == 0 {
			break
		}
		files = b.s.unsaved[i-1].files
	}
	a, err := retry.Do(ctx, func(ctx context.Context) (memory.Artifact, error) {
		return b.s.cfg.Store.GetArtifact(ctx, b.s.ref, name, version)
	})
	return file{Artifact: a}, err
}
