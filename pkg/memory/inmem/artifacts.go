package inmem

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"slices"
	"time"

	"github.com/troupe-dev/troupe/internal/storeerror"
	"github.com/troupe-dev/troupe/pkg/failure"
	"github.com/troupe-dev/troupe/pkg/memory"
	"github.com/troupe-dev/troupe/pkg/session"
)

// stagedFor is how long a content waits for its artifact.
const stagedFor = 24 * time.Hour

// shelf is the artifacts of a session, or of a user, and their contents.
type shelf struct {
	artifacts []memory.Artifact
	versions  map[string]int // the last of each name
	contents  map[memory.Content]*content
}

func newShelf() shelf {
	return shelf{versions: map[string]int{}, contents: map[memory.Content]*content{}}
}

// shelf is where artifacts of a name are; nil in a session without a user for one of a user.
func (s *Store) shelf(ref session.Ref, in *conversed, name string) *shelf {
	if memory.ScopeOf(name) != memory.ScopeUser {
		return &in.shelf
	}
	if in.User == "" {
		return nil
	}
	of := owner{ref.Tenant, in.User}
	if s.shelves[of] == nil {
		shelf := newShelf()
		s.shelves[of] = &shelf
	}
	return s.shelves[of]
}

// content is bytes that are stored, or on their way.
type content struct {
	bytes  []byte
	staged time.Time
}

// StageArtifact implements memory.Artifacts.
func (s *Store) StageArtifact(_ context.Context, h memory.Lease, c memory.Content) (int64, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	_, stored, err := s.stage("memory.StageArtifact", h, c)
	return stored, err
}

// stage makes room for a content and returns how much of it is stored.
func (s *Store) stage(op string, h memory.Lease, c memory.Content) (*conversed, int64, error) {
	if c.Size == 0 && c.SHA256 != digest(nil) {
		return nil, 0, wrongDigest(op, c)
	}
	in, _, err := s.held(op, h)
	if err != nil {
		return nil, 0, err
	}
	stored := s.stored(in, c)
	if in.contents[c] != nil && stored == c.Size {
		return in, stored, nil
	}
	count, bytes := s.staged(in, c)
	if len(in.artifacts)+count+1 > memory.MaxArtifacts || in.bytes()+bytes+c.Size > memory.MaxSessionArtifacts {
		return nil, 0, artifactsFull(op, in)
	}
	if in.contents[c] == nil {
		in.contents[c] = &content{staged: s.now()}
	}
	return in, stored, nil
}

// staged is how many contents beside one were promised and not put, and their bytes.
func (s *Store) staged(in *conversed, beside memory.Content) (count int, bytes int64) {
	for c, known := range in.contents {
		if c != beside && !in.refers(c) && !s.past(known.staged, stagedFor) {
			count, bytes = count+1, bytes+c.Size
		}
	}
	return count, bytes
}

// stored is how much of a content is there. What was staged for too long is forgotten.
func (s *Store) stored(in *conversed, c memory.Content) int64 {
	known := in.contents[c]
	if known == nil {
		return 0
	}
	if !in.refers(c) && s.past(known.staged, stagedFor) {
		delete(in.contents, c)
		return 0
	}
	return int64(len(known.bytes))
}

// AppendArtifact implements memory.Artifacts.
func (s *Store) AppendArtifact(_ context.Context, h memory.Lease, c memory.Content, offset int64, piece []byte) error {
	const op = "memory.AppendArtifact"
	s.mu.Lock()
	defer s.mu.Unlock()
	in, stored, err := s.stage(op, h, c)
	if err != nil {
		return err
	}
	if next, err := c.CheckPiece(op, stored, offset, piece); !next {
		return err
	}
	known := in.contents[c]
	known.bytes = append(known.bytes, piece...)
	if int64(len(known.bytes)) == c.Size && digest(known.bytes) != c.SHA256 {
		delete(in.contents, c)
		return wrongDigest(op, c)
	}
	return nil
}

// PutArtifact implements memory.Artifacts.
func (s *Store) PutArtifact(_ context.Context, h memory.Lease, a memory.Artifact) (memory.Artifact, error) {
	const op = "memory.PutArtifact"
	if err := memory.CheckArtifactName(op, a.Name); err != nil {
		return memory.Artifact{}, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if a.Size == 0 && a.SHA256 != digest(nil) {
		return memory.Artifact{}, wrongDigest(op, a.Content)
	}
	in, t, err := s.held(op, h)
	if err != nil {
		return memory.Artifact{}, err
	}
	on := s.shelf(h.Ref, in, a.Name)
	if on == nil {
		return memory.Artifact{}, storeerror.NoUser(op, h.Ref, a.Name)
	}
	stored := s.stored(in, a.Content)
	if (stored < a.Size || in.contents[a.Content] == nil) && !on.refers(a.Content) {
		return memory.Artifact{}, storeerror.WrongOffset(op, stored)
	}
	if latest, ok := on.artifact(a.Name, 0); ok && latest.Content == a.Content {
		in.leaves(on, a.Content)
		return latest, nil
	}
	if len(on.artifacts) == memory.MaxArtifacts || on.bytes()+a.Size > memory.MaxSessionArtifacts {
		return memory.Artifact{}, artifactsFull(op, in)
	}
	if on.contents[a.Content] == nil {
		on.contents[a.Content] = &content{bytes: in.contents[a.Content].bytes}
	}
	on.versions[a.Name]++
	a.Version, a.Turn, a.Created = on.versions[a.Name], t.ID, s.now()
	on.artifacts = sorted(append(on.artifacts, a))
	in.leaves(on, a.Content)
	in.LastActivity = s.now()
	return a, nil
}

// leaves forgets a content that was staged in the session and that its user has now.
func (c *conversed) leaves(on *shelf, put memory.Content) {
	if on != &c.shelf && !c.refers(put) {
		delete(c.contents, put)
	}
}

func sorted(all []memory.Artifact) []memory.Artifact {
	slices.SortFunc(all, func(a, b memory.Artifact) int {
		return cmp.Or(cmp.Compare(a.Name, b.Name), cmp.Compare(a.Version, b.Version))
	})
	return all
}

// GetArtifact implements memory.Artifacts.
func (s *Store) GetArtifact(_ context.Context, ref session.Ref, name string, version int) (memory.Artifact, error) {
	const op = "memory.GetArtifact"
	s.mu.Lock()
	defer s.mu.Unlock()
	in, err := s.get(op, ref)
	if err != nil {
		return memory.Artifact{}, err
	}
	var a memory.Artifact
	on, ok := s.shelf(ref, in, name), false
	if on != nil {
		a, ok = on.artifact(name, version)
	}
	if !ok {
		return memory.Artifact{}, failure.Newf(failure.NotFound, op, "session %s has no artifact %s in that version; list them", ref.Session, name).
			With("session_id", ref.Session).With("name", name)
	}
	return a, nil
}

// ReadArtifact implements memory.Artifacts.
func (s *Store) ReadArtifact(_ context.Context, ref session.Ref, c memory.Content, offset int64) ([]byte, error) {
	const op = "memory.ReadArtifact"
	s.mu.Lock()
	defer s.mu.Unlock()
	in, err := s.get(op, ref)
	if err != nil {
		return nil, err
	}
	from := &in.shelf
	if users := s.shelf(ref, in, "user:"); !in.refers(c) && users != nil {
		from = users
	}
	if !from.refers(c) {
		return nil, failure.Newf(failure.NotFound, op, "session %s has no artifact with the content %s; list them", ref.Session, c.SHA256).
			With("session_id", ref.Session)
	}
	end := min(offset+memory.ArtifactChunk, c.Size)
	return slices.Clone(from.contents[c].bytes[min(offset, end):end]), nil
}

// ListArtifacts implements memory.Artifacts.
func (s *Store) ListArtifacts(_ context.Context, ref session.Ref) ([]memory.Artifact, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	in, err := s.get("memory.ListArtifacts", ref)
	if err != nil {
		return nil, err
	}
	all := slices.Clone(in.artifacts)
	if users := s.shelf(ref, in, "user:"); users != nil {
		all = append(all, users.artifacts...)
	}
	return sorted(all), nil
}

// DeleteArtifact implements memory.Artifacts.
func (s *Store) DeleteArtifact(_ context.Context, h memory.Lease, name string, version int) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	const op = "memory.DeleteArtifact"
	in, _, err := s.held(op, h)
	if err != nil {
		return err
	}
	on := s.shelf(h.Ref, in, name)
	if on == nil {
		return storeerror.NoUser(op, h.Ref, name)
	}
	gone := func(a memory.Artifact) bool { return a.Name == name && (version == 0 || a.Version == version) }
	before := slices.Clone(on.artifacts)
	on.artifacts = slices.DeleteFunc(on.artifacts, gone)
	for _, a := range before {
		if gone(a) && !on.refers(a.Content) {
			delete(on.contents, a.Content)
		}
	}
	return nil
}

// artifact finds a version; 0 is the latest.
func (c *shelf) artifact(name string, version int) (memory.Artifact, bool) {
	for _, a := range slices.Backward(c.artifacts) {
		if a.Name == name && (version == 0 || a.Version == version) {
			return a, true
		}
	}
	return memory.Artifact{}, false
}

// refers reports whether an artifact has the content.
func (c *shelf) refers(to memory.Content) bool {
	return slices.ContainsFunc(c.artifacts, func(a memory.Artifact) bool { return a.Content == to })
}

// bytes are those of all versions.
func (c *shelf) bytes() (sum int64) {
	for _, a := range c.artifacts {
		sum += a.Size
	}
	return sum
}

func digest(content []byte) string {
	sum := sha256.Sum256(content)
	return hex.EncodeToString(sum[:])
}

func wrongDigest(op string, c memory.Content) error {
	return failure.Newf(failure.UserInvalidInput, op, "the bytes do not have the digest %s; send them again, from the first", c.SHA256).
		With("sha256", c.SHA256)
}

func artifactsFull(op string, in *conversed) error {
	return failure.Newf(failure.ResourceQuota, op, "the artifacts of session %s, or of its user, would be too many; it may hold %d versions and %d bytes: delete some",
		in.ID, memory.MaxArtifacts, memory.MaxSessionArtifacts).With("session_id", in.ID)
}
