package artifacts

import (
	"context"
	"slices"
	"time"

	"github.com/troupe-dev/troupe/pkg/failure"
	"github.com/troupe-dev/troupe/pkg/memory"
	"github.com/troupe-dev/troupe/pkg/memory/inmem/internal/db"
	"github.com/troupe-dev/troupe/pkg/session"
)

// StagingTime is how long staged content is kept while no artifact uses it.
const StagingTime = 24 * time.Hour

// StageArtifact implements memory.Artifacts.
func (s *Artifacts) StageArtifact(_ context.Context, lease memory.Lease, content memory.Content) (int64, error) {
	s.db.Lock()
	defer s.db.Unlock()
	_, stored, err := s.prepareStaging("memory.StageArtifact", lease, content)
	return stored, err
}

// AppendArtifact implements memory.Artifacts.
func (s *Artifacts) AppendArtifact(_ context.Context, lease memory.Lease, content memory.Content, offset int64, piece []byte) error {
	const op = "memory.AppendArtifact"
	s.db.Lock()
	defer s.db.Unlock()
	set, stored, err := s.prepareStaging(op, lease, content)
	if err != nil {
		return err
	}
	if next, err := content.CheckPiece(op, stored, offset, piece); !next {
		return err
	}
	known := set.Contents[content]
	known.Bytes = append(known.Bytes, piece...)
	if int64(len(known.Bytes)) == content.Size && memory.ContentOf(known.Bytes) != content {
		delete(set.Contents, content)
		return wrongDigestError(op, content)
	}
	return nil
}

// prepareStaging reserves room for content among the artifacts of the session. It returns the artifacts and the
// number of stored bytes of the content.
func (s *Artifacts) prepareStaging(op string, lease memory.Lease, content memory.Content) (*db.ArtifactSet, int64, error) {
	if err := checkEmptyContent(op, content); err != nil {
		return nil, 0, err
	}
	c, _, err := s.db.FindTurnByLease(op, lease)
	if err != nil {
		return nil, 0, err
	}
	set := c.Artifacts
	stored := s.storedBytes(set, content)
	if set.Contents[content] != nil && stored == content.Size {
		return set, stored, nil
	}
	count, bytes := s.countStagedContent(set, func(other memory.Content) bool { return other == content })
	if len(set.Versions)+count+1 > memory.MaxArtifacts || set.TotalSize()+bytes+content.Size > memory.MaxSessionArtifactBytes {
		return nil, 0, NewLimitError(op, c)
	}
	if set.Contents[content] == nil {
		set.Contents[content] = &db.Content{StagedAt: s.db.Now()}
	}
	return set, stored, nil
}

// countStagedContent returns how many staged contents no artifact uses, and their size in bytes. It skips expired ones, and
// those for which except returns true.
func (s *Artifacts) countStagedContent(set *db.ArtifactSet, except func(memory.Content) bool) (count int, bytes int64) {
	for content, known := range set.Contents {
		if !except(content) && !set.HasContent(content) && !s.db.HasElapsed(known.StagedAt, StagingTime) {
			count, bytes = count+1, bytes+content.Size
		}
	}
	return count, bytes
}

// storedBytes returns how many bytes of the content are stored. It first deletes the content if it was staged too
// long ago.
func (s *Artifacts) storedBytes(set *db.ArtifactSet, content memory.Content) int64 {
	known := set.Contents[content]
	if known == nil {
		return 0
	}
	if !set.HasContent(content) && s.db.HasElapsed(known.StagedAt, StagingTime) {
		delete(set.Contents, content)
		return 0
	}
	return int64(len(known.Bytes))
}

// ReadArtifact implements memory.Artifacts.
func (s *Artifacts) ReadArtifact(_ context.Context, ref session.Ref, content memory.Content, offset int64) ([]byte, error) {
	const op = "memory.ReadArtifact"
	s.db.Lock()
	defer s.db.Unlock()
	c, err := s.db.GetSession(op, ref)
	if err != nil {
		return nil, err
	}
	set := c.Artifacts
	if ofUser := s.userArtifacts(ref, c); !set.HasContent(content) && ofUser != nil {
		set = ofUser
	}
	if !set.HasContent(content) {
		return nil, failure.Newf(failure.NotFound, op, "session %s has no artifact with the content %s; list its artifacts",
			ref.Session, content.SHA256).With("session_id", ref.Session)
	}
	end := min(offset+memory.ArtifactChunk, content.Size)
	return slices.Clone(set.Contents[content].Bytes[min(offset, end):end]), nil
}

// checkEmptyContent rejects empty content whose digest is wrong.
func checkEmptyContent(op string, content memory.Content) error {
	if content.Size == 0 && content != memory.ContentOf(nil) {
		return wrongDigestError(op, content)
	}
	return nil
}

func wrongDigestError(op string, content memory.Content) error {
	return failure.Newf(failure.UserInvalidInput, op, "the bytes do not have the digest %s; send them again, from the first", content.SHA256).
		With("sha256", content.SHA256)
}
