package memory

import (
	"context"
	"time"

	"github.com/troupe-dev/troupe/pkg/session"
)

// Limits of artifacts (guarantees S9). Those of a session hold for the artifacts of a user, too.
const (
	MaxArtifactBytes    = 64 << 20
	MaxArtifactName     = 256       // bytes
	MaxArtifacts        = 1000      // versions in a session or of a user, and contents that are staged
	MaxSessionArtifacts = 256 << 20 // bytes of all these
	// ArtifactChunk is the size of the pieces in which content is written and read. Only the
	// last piece may be shorter.
	ArtifactChunk = 512 << 10
)

// Artifacts are what turns make, in versions. Content is known by its digest: equal content
// of a session is stored once, and what is stored need not be sent again.
//
// An artifact whose name begins with user: is not the session's but its user's (AD-23): all
// sessions of the user in the tenant see it and add to its versions, and it stays when they
// are cleared or deleted. Its content is staged in the session like any other, and leaves it
// when it is put.
type Artifacts interface {
	// StageArtifact returns how many bytes of a content are stored already; all of them when
	// it is complete. What is staged and not put within a day is forgotten; until then it
	// counts as if it had been put, with all its bytes. Modes, in the
	// order in which they are looked for: user_invalid_input for an empty content with
	// another digest than that of nothing; not_found, fenced, turn_not_open; resource_quota,
	// but not for a content that is complete.
	StageArtifact(ctx context.Context, h Lease, c Content) (int64, error)
	// AppendArtifact stores the next piece of a content, at the offset where it ends so far.
	// A piece that is stored already is passed over. Modes: those of StageArtifact;
	// user_invalid_input when a piece is not ArtifactChunk long and not the rest either;
	// base_mismatch with the offset at which to go on as a fact, 0 when nothing is staged;
	// user_invalid_input when the last piece is there and the bytes do not have the digest:
	// then they are forgotten.
	AppendArtifact(ctx context.Context, h Lease, c Content, offset int64, piece []byte) error
	// PutArtifact makes a staged content the next version of the artifact. The same content
	// as the latest version makes no new one. Modes: user_invalid_input by CheckArtifactName
	// and as in StageArtifact; not_found, fenced, turn_not_open; user_invalid_input by
	// ArtifactOfNobody; base_mismatch when it was not staged or bytes are missing, and none of
	// the user's has it already, with the offset at which to go on as a fact; resource_quota.
	PutArtifact(ctx context.Context, h Lease, a Artifact) (Artifact, error)
	// GetArtifact finds a version of an artifact; 0 is the latest. Modes: not_found.
	GetArtifact(ctx context.Context, ref session.Ref, name string, version int) (Artifact, error)
	// ReadArtifact returns bytes of a content from the offset on, at most ArtifactChunk; none
	// at its end. Modes: not_found, also when no artifact has the content.
	ReadArtifact(ctx context.Context, ref session.Ref, c Content, offset int64) ([]byte, error)
	// ListArtifacts returns all versions, by name and version: the session's, and with them
	// those of its user. Modes: not_found when there is no such session.
	ListArtifacts(ctx context.Context, ref session.Ref) ([]Artifact, error)
	// DeleteArtifact removes a version, or with 0 all of them. What is not there is no error.
	// A version number is not used again, unless the session is cleared. Content that no
	// version has any more is forgotten. Modes: not_found, fenced, turn_not_open;
	// user_invalid_input by ArtifactOfNobody.
	DeleteArtifact(ctx context.Context, h Lease, name string, version int) error
}

// Content is a sequence of bytes.
type Content struct {
	SHA256 string // 64 lower-case hex digits
	Size   int64  // 0 to MaxArtifactBytes
}

// Artifact is a version of something that a turn made.
type Artifact struct {
	Content
	Name      string // as CheckArtifactName has it
	MediaType string
	Version   int // from 1; the store assigns it
	Turn      string
	Created   time.Time
}
