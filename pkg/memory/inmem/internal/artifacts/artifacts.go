// Package artifacts stores the files that turns create and the files attached to messages.
package artifacts

import (
	"context"
	"slices"

	"github.com/troupe-dev/troupe/internal/storeerror"
	"github.com/troupe-dev/troupe/pkg/failure"
	"github.com/troupe-dev/troupe/pkg/memory"
	"github.com/troupe-dev/troupe/pkg/memory/inmem/internal/db"
	"github.com/troupe-dev/troupe/pkg/session"
)

// Artifacts implements memory.Artifacts. It is safe for concurrent use.
type Artifacts struct{ db *db.DB }

// New returns an artifact store backed by d.
func New(d *db.DB) *Artifacts { return &Artifacts{d} }

// PutArtifact implements memory.Artifacts.
func (s *Artifacts) PutArtifact(_ context.Context, lease memory.Lease, a memory.Artifact) (memory.Artifact, error) {
	const op = "memory.PutArtifact"
	if err := memory.CheckArtifactName(op, a.Name); err != nil {
		return memory.Artifact{}, err
	}
	if err := checkEmptyContent(op, a.Content); err != nil {
		return memory.Artifact{}, err
	}
	s.db.Lock()
	defer s.db.Unlock()
	c, t, err := s.db.FindTurnByLease(op, lease)
	if err != nil {
		return memory.Artifact{}, err
	}
	set := s.db.FindArtifactSet(lease.Ref, c, a.Name)
	if set == nil {
		return memory.Artifact{}, storeerror.NoUser(op, lease.Ref, a.Name)
	}
	stored := s.storedBytes(c.Artifacts, a.Content)
	if (stored < a.Size || c.Artifacts.Contents[a.Content] == nil) && !set.HasContent(a.Content) {
		return memory.Artifact{}, storeerror.WrongOffset(op, stored)
	}
	if latest, ok := set.Find(a.Name, 0); ok && latest.Content == a.Content {
		deleteStaged(c, set, a.Content)
		return latest, nil
	}
	if len(set.Versions) == memory.MaxArtifacts || set.TotalSize()+a.Size > memory.MaxSessionArtifactBytes {
		return memory.Artifact{}, NewLimitError(op, c)
	}
	if set.Contents[a.Content] == nil {
		set.Contents[a.Content] = &db.Content{Bytes: c.Artifacts.Contents[a.Content].Bytes}
	}
	a = set.Add(a, t.ID, s.db.Now())
	deleteStaged(c, set, a.Content)
	c.LastActivity = s.db.Now()
	return a, nil
}

// deleteStaged deletes staged content from the session after it was moved to the session's user.
func deleteStaged(c *db.Session, set *db.ArtifactSet, put memory.Content) {
	if set != c.Artifacts && !c.Artifacts.HasContent(put) {
		delete(c.Artifacts.Contents, put)
	}
}

// GetArtifact implements memory.Artifacts.
func (s *Artifacts) GetArtifact(_ context.Context, ref session.Ref, name string, version int) (memory.Artifact, error) {
	const op = "memory.GetArtifact"
	s.db.Lock()
	defer s.db.Unlock()
	c, err := s.db.GetSession(op, ref)
	if err != nil {
		return memory.Artifact{}, err
	}
	if set := s.db.FindArtifactSet(ref, c, name); set != nil {
		if a, ok := set.Find(name, version); ok {
			return a, nil
		}
	}
	return memory.Artifact{}, failure.Newf(failure.NotFound, op, "session %s has no such version of the artifact %s; list its artifacts",
		ref.Session, name).With("session_id", ref.Session).With("name", name)
}

// ListArtifacts implements memory.Artifacts.
func (s *Artifacts) ListArtifacts(_ context.Context, ref session.Ref) ([]memory.Artifact, error) {
	s.db.Lock()
	defer s.db.Unlock()
	c, err := s.db.GetSession("memory.ListArtifacts", ref)
	if err != nil {
		return nil, err
	}
	all := slices.Clone(c.Artifacts.Versions)
	if set := s.userArtifacts(ref, c); set != nil {
		all = append(all, set.Versions...)
	}
	return db.SortArtifacts(all), nil
}

// userArtifacts returns the artifacts of a session's user, or nil if the session has no user.
func (s *Artifacts) userArtifacts(ref session.Ref, c *db.Session) *db.ArtifactSet {
	return s.db.FindArtifactSet(ref, c, string(memory.ScopeUser)+":")
}

// DeleteArtifact implements memory.Artifacts.
func (s *Artifacts) DeleteArtifact(_ context.Context, lease memory.Lease, name string, version int) error {
	const op = "memory.DeleteArtifact"
	s.db.Lock()
	defer s.db.Unlock()
	c, _, err := s.db.FindTurnByLease(op, lease)
	if err != nil {
		return err
	}
	set := s.db.FindArtifactSet(lease.Ref, c, name)
	if set == nil {
		return storeerror.NoUser(op, lease.Ref, name)
	}
	var deleted []memory.Artifact
	set.Versions = slices.DeleteFunc(set.Versions, func(a memory.Artifact) bool {
		matches := a.Name == name && (version == 0 || a.Version == version)
		if matches {
			deleted = append(deleted, a)
		}
		return matches
	})
	for _, a := range deleted {
		if !set.HasContent(a.Content) {
			delete(set.Contents, a.Content)
		}
	}
	return nil
}

// NewLimitError returns the error for artifacts that would exceed the limits.
func NewLimitError(op string, c *db.Session) error {
	return failure.Newf(failure.ResourceQuota, op,
		"the artifacts of session %s, or of its user, would be too many; it may hold %d versions and %d bytes: delete some",
		c.ID, memory.MaxArtifacts, memory.MaxSessionArtifactBytes).With("session_id", c.ID)
}
