// Package hookstore gives the handlers and tools of a running turn access to its session. They can use the state,
// the artifacts, and the user's messages in other sessions. Calls to the MEMORY tier are retried after transient
// failures.
package hookstore

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"

	"github.com/troupe-dev/troupe/internal/retry"
	"github.com/troupe-dev/troupe/pkg/event"
	"github.com/troupe-dev/troupe/pkg/execution"
	"github.com/troupe-dev/troupe/pkg/failure"
	"github.com/troupe-dev/troupe/pkg/hook"
	"github.com/troupe-dev/troupe/pkg/memory"
)

// MemoryTier is the part of the MEMORY tier that a turn may use.
type MemoryTier interface {
	memory.State
	memory.Artifacts
	SearchMemory(ctx context.Context, s memory.Search) ([]memory.Hit, error)
}

// New returns the store for a turn in a session of user. Artifacts are written with the epoch of the turn's lease.
func New(tier MemoryTier, lease memory.Lease, user string) hook.Store {
	return &turnStore{tier, lease, user}
}

type turnStore struct {
	tier  MemoryTier
	lease memory.Lease
	user  string
}

// State implements hook.Store.
func (s *turnStore) State(ctx context.Context) (map[string]json.RawMessage, map[string]int64, string, error) {
	seen, err := retry.Do(ctx, func(ctx context.Context) (memory.Snapshot, error) { return s.tier.GetState(ctx, s.lease.Ref) })
	return seen.Values, seen.Keys, seen.Untrusted, err
}

// SaveArtifact implements hook.Store. It sends only those bytes that are not yet stored.
func (s *turnStore) SaveArtifact(ctx context.Context, name, mediaType string, content []byte) (int, error) {
	if err := memory.CheckArtifactName("hookstore.SaveArtifact", name); err != nil { // before any byte is sent
		return 0, err
	}
	sum := sha256.Sum256(content)
	c := memory.Content{SHA256: hex.EncodeToString(sum[:]), Size: int64(len(content))}
	stored, err := retry.Do(ctx, func(ctx context.Context) (int64, error) { return s.tier.StageArtifact(ctx, s.lease, c) })
	if err != nil {
		return 0, err
	}
	for ; stored < c.Size; stored = min(stored+memory.ArtifactChunk, c.Size) {
		piece := content[stored:min(stored+memory.ArtifactChunk, c.Size)]
		if _, err := retry.Do(ctx, func(ctx context.Context) (struct{}, error) {
			return struct{}{}, s.tier.AppendArtifact(ctx, s.lease, c, stored, piece)
		}); err != nil {
			return 0, err
		}
	}
	put, err := retry.Do(ctx, func(ctx context.Context) (memory.Artifact, error) {
		return s.tier.PutArtifact(ctx, s.lease, memory.Artifact{Content: c, Name: name, MediaType: mediaType})
	})
	return put.Version, err
}

// LoadArtifact implements hook.Store.
func (s *turnStore) LoadArtifact(ctx context.Context, name string, version int) ([]byte, string, error) {
	a, err := retry.Do(ctx, func(ctx context.Context) (memory.Artifact, error) {
		return s.tier.GetArtifact(ctx, s.lease.Ref, name, version)
	})
	if err != nil {
		return nil, "", err
	}
	var content bytes.Buffer
	for int64(content.Len()) < a.Size {
		piece, err := retry.Do(ctx, func(ctx context.Context) ([]byte, error) {
			return s.tier.ReadArtifact(ctx, s.lease.Ref, a.Content, int64(content.Len()))
		})
		if err != nil {
			return nil, "", err
		}
		if len(piece) == 0 {
			return nil, "", failure.Newf(failure.NotFound, "hookstore.LoadArtifact", "artifact %s was removed while it was read; load it again", name)
		}
		content.Write(piece)
	}
	return content.Bytes(), a.MediaType, nil
}

// EarlierEntries implements hook.Store. The MEMORY tier keeps no traces.
func (s *turnStore) EarlierEntries(context.Context, int) ([]event.Event, error) { return nil, nil }

// WithEntries returns a store that reads the trace entries of earlier turns with the given function (nil keeps the store).
func WithEntries(store hook.Store, read func(ctx context.Context, limit int) ([]event.Event, error)) hook.Store {
	if read == nil {
		return store
	}
	return entryStore{store, read}
}

type entryStore struct {
	hook.Store
	read func(ctx context.Context, limit int) ([]event.Event, error)
}

// EarlierEntries implements hook.Store.
func (s entryStore) EarlierEntries(ctx context.Context, limit int) ([]event.Event, error) {
	if limit <= 0 || limit > execution.MaxEntries {
		limit = execution.MaxEntries
	}
	return s.read(ctx, limit)
}

// Search implements hook.Store.
func (s *turnStore) Search(ctx context.Context, query string, limit int) ([]hook.Found, error) {
	if s.user == "" {
		return nil, nil
	}
	hits, err := retry.Do(ctx, func(ctx context.Context) ([]memory.Hit, error) {
		return s.tier.SearchMemory(ctx, memory.Search{Tenant: s.lease.Ref.Tenant, User: s.user, Query: query, Limit: limit})
	})
	found := make([]hook.Found, len(hits))
	for i, h := range hits {
		found[i] = hook.Found{Session: h.Session, Text: h.Message.Text, Score: h.Score}
	}
	return found, err
}
