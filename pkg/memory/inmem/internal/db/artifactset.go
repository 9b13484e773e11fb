package db

import (
	"cmp"
	"slices"
	"time"

	"github.com/troupe-dev/troupe/pkg/memory"
	"github.com/troupe-dev/troupe/pkg/session"
)

// ArtifactSet holds the artifacts of a session or of a user, with their contents.
type ArtifactSet struct {
	Versions []memory.Artifact // sorted by SortArtifacts
	Contents map[memory.Content]*Content
	latest   map[string]int // highest version number assigned so far, by name, including deleted versions
}

// Content holds the stored bytes of an artifact's content. They may be incomplete.
type Content struct {
	Bytes    []byte
	StagedAt time.Time
}

func newArtifactSet() *ArtifactSet {
	return &ArtifactSet{Contents: map[memory.Content]*Content{}, latest: map[string]int{}}
}

// FindArtifactSet returns the set to which an artifact with this name belongs: the set of the session or the set
// of its user. It returns nil for a name under user: in a session without a user.
func (d *DB) FindArtifactSet(ref session.Ref, c *Session, name string) *ArtifactSet {
	if memory.ScopeOf(name) != memory.ScopeUser {
		return c.Artifacts
	}
	if c.User == "" {
		return nil
	}
	owner := Owner{ref.Tenant, c.User}
	if d.Artifacts[owner] == nil {
		d.Artifacts[owner] = newArtifactSet()
	}
	return d.Artifacts[owner]
}

// Find returns a version of an artifact (0 means the latest version).
func (s *ArtifactSet) Find(name string, version int) (memory.Artifact, bool) {
	for _, a := range slices.Backward(s.Versions) {
		if a.Name == name && (version == 0 || a.Version == version) {
			return a, true
		}
	}
	return memory.Artifact{}, false
}

// Add adds an artifact as the next version of its name, and returns it with its version.
func (s *ArtifactSet) Add(a memory.Artifact, turnID string, now time.Time) memory.Artifact {
	s.latest[a.Name]++
	a.Version, a.Turn, a.Created = s.latest[a.Name], turnID, now
	s.Versions = SortArtifacts(append(s.Versions, a))
	return a
}

// HasContent reports whether an artifact of the set has the content.
func (s *ArtifactSet) HasContent(to memory.Content) bool {
	return slices.ContainsFunc(s.Versions, func(a memory.Artifact) bool { return a.Content == to })
}

// TotalSize returns the total size of all versions in bytes.
func (s *ArtifactSet) TotalSize() (sum int64) {
	for _, a := range s.Versions {
		sum += a.Size
	}
	return sum
}

// Clear removes all artifacts and their contents, except staged contents. The next version number of every
// artifact is 1 again.
func (s *ArtifactSet) Clear() {
	for _, a := range s.Versions {
		delete(s.Contents, a.Content)
	}
	s.Versions, s.latest = nil, map[string]int{}
}

// SortArtifacts sorts by name and version, in place.
func SortArtifacts(all []memory.Artifact) []memory.Artifact {
	slices.SortFunc(all, func(a, b memory.Artifact) int {
		return cmp.Or(cmp.Compare(a.Name, b.Name), cmp.Compare(a.Version, b.Version))
	})
	return all
}
