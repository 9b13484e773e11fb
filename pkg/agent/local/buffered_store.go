package local

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

	"github.com/troupe-dev/troupe/internal/hookstore"
	"github.com/troupe-dev/troupe/internal/retry"
	"github.com/troupe-dev/troupe/internal/statechange"
	"github.com/troupe-dev/troupe/internal/storeerror"
	"github.com/troupe-dev/troupe/pkg/agent/local/internal/storage"
	"github.com/troupe-dev/troupe/pkg/conversation"
	"github.com/troupe-dev/troupe/pkg/event"
	"github.com/troupe-dev/troupe/pkg/failure"
	"github.com/troupe-dev/troupe/pkg/hook"
	"github.com/troupe-dev/troupe/pkg/memory"
)

// bufferedStore is the hook.Store of a turn in a session with NoAutoSave. It reads the stored data plus the
// changes of turns that are not saved yet. It writes nothing to the store.
type bufferedStore struct {
	s    *Session
	turn *storage.Turn
	mu   sync.Mutex // guards turn.Files: tools may run in parallel
}

// State implements hook.Store.
func (b *bufferedStore) State(ctx context.Context) (map[string]json.RawMessage, map[string]int64, string, error) {
	snapshot, err := retry.Do(ctx, func(ctx context.Context) (memory.Snapshot, error) {
		return b.s.cfg.Store.GetState(ctx, b.s.storage.Ref)
	})
	if err != nil && !failure.Is(err, failure.NotFound) { // the session may not be stored yet
		return nil, nil, "", err
	}
	state, source := maps.Clone(snapshot.Values), snapshot.Untrusted
	if state == nil {
		state = map[string]json.RawMessage{}
	}
	revisions := map[string]int64{}
	maps.Copy(revisions, snapshot.Keys)
	for _, t := range b.s.status.Unsaved() {
		maps.Copy(state, t.State) // an empty value removes
		for key := range t.State {
			revisions[key] = statechange.Unread
		}
		source = conversation.MostRestrictiveSource(source, t.UntrustedSource())
	}
	return state, revisions, source, nil
}

// SaveArtifact implements hook.Store. The version of a user's artifact is preliminary, because another session may
// store one before this session is saved.
func (b *bufferedStore) SaveArtifact(ctx context.Context, name, mediaType string, content []byte) (int, error) {
	const op = "local.SaveArtifact"
	if err := memory.CheckArtifactName(op, name); err != nil {
		return 0, err
	}
	if memory.ScopeOf(name) == memory.ScopeUser && b.s.cfg.User == "" {
		return 0, storeerror.NoUser(op, b.s.storage.Ref, name)
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
		Name:    name, MediaType: mediaType, Turn: b.turn.ID, Created: time.Now(),
	}
	latest, err := b.findArtifact(ctx, name, 0)
	if err != nil && !failure.Is(err, failure.NotFound) {
		return 0, err
	}
	if err == nil && latest.Content == next.Content {
		return latest.Version, nil
	}
	next.Version = latest.Version + 1
	b.turn.Files = append(b.turn.Files, storage.File{Artifact: next, Bytes: append([]byte{}, content...)})
	return next.Version, nil
}

// LoadArtifact implements hook.Store.
func (b *bufferedStore) LoadArtifact(ctx context.Context, name string, version int) ([]byte, string, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	f, err := b.findArtifact(ctx, name, version)
	if err != nil {
		return nil, "", err
	}
	if f.Bytes != nil {
		return bytes.Clone(f.Bytes), f.MediaType, nil
	}
	return b.savedStore().LoadArtifact(ctx, name, f.Version)
}

// Search implements hook.Store.
func (b *bufferedStore) Search(ctx context.Context, query string, limit int) ([]hook.Found, error) {
	return b.savedStore().Search(ctx, query, limit)
}

// EarlierEntries implements hook.Store.
func (b *bufferedStore) EarlierEntries(ctx context.Context, limit int) ([]event.Event, error) {
	return b.s.entries.latest(ctx, limit)
}

// savedStore returns a hook.Store of the saved data. It needs no lease, because the buffer only reads from it.
func (b *bufferedStore) savedStore() hook.Store {
	return hookstore.New(b.s.cfg.Store, memory.Lease{Ref: b.s.storage.Ref}, b.s.cfg.User)
}

// findArtifact returns a version of an artifact (0 means the latest). A version that is already stored comes
// without its content.
func (b *bufferedStore) findArtifact(ctx context.Context, name string, version int) (storage.File, error) {
	files := b.turn.Files
	unsaved := b.s.status.Unsaved()
	for i := len(unsaved); ; i-- {
		for _, f := range slices.Backward(files) {
			if f.Name == name && (version == 0 || version == f.Version) {
				return f, nil
			}
		}
		if i == 0 {
			break
		}
		files = unsaved[i-1].Files
	}
	a, err := retry.Do(ctx, func(ctx context.Context) (memory.Artifact, error) {
		return b.s.cfg.Store.GetArtifact(ctx, b.s.storage.Ref, name, version)
	})
	return storage.File{Artifact: a}, err
}
