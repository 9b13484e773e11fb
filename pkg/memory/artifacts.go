package memory

import (
	"context"
	"time"

	"github.com/troupe-dev/troupe/internal/attachment"
	"github.com/troupe-dev/troupe/pkg/session"
)

// Limits of artifacts (guarantee S9). They apply to the artifacts of a session, and separately to the artifacts
// of a user.
const (
	MaxArtifactBytes        = attachment.MaxArtifactBytes
	MaxArtifactNameBytes    = attachment.MaxNameBytes
	MaxArtifacts            = 1000      // versions of a session or of a user, including staged contents
	MaxSessionArtifactBytes = 256 << 20 // total bytes of the artifacts of a session or of a user
	// ArtifactChunk is the size in bytes of the pieces in which content is written and read. Only the last piece
	// may be shorter.
	ArtifactChunk = 512 << 10
)

// Artifacts stores the files that turns create, in versions. Content is identified by its digest. A session stores
// equal content once, and a caller need not send content that is already stored.
//
// An artifact whose name begins with user: belongs to the user instead of the session (AD-23). All sessions of the
// user in the tenant can read it and add versions to it. It remains when a session is cleared or deleted. A caller
// stages its content in the session like any other content, and PutArtifact moves it to the user.
type Artifacts interface {
	// StageArtifact begins to store content and returns how many of its bytes are already stored. Content that no
	// artifact uses is deleted after a day. Until then its full size counts toward the limits. Modes, checked in
	// this order: user_invalid_input for empty content with a wrong digest; not_found, fenced, turn_not_open;
	// resource_quota, unless the content is complete.
	StageArtifact(ctx context.Context, h Lease, c Content) (int64, error)
	// AppendArtifact stores the next piece of content at offset, which must be the number of stored bytes. A piece
	// that is already stored is skipped. Modes: as for StageArtifact; user_invalid_input when the piece is neither
	// ArtifactChunk long nor the rest; base_mismatch with the fact offset, from which to continue (0 when nothing
	// is staged); user_invalid_input when the complete content does not match the digest. In the last case the
	// stored bytes are deleted.
	AppendArtifact(ctx context.Context, h Lease, c Content, offset int64, piece []byte) error
	// PutArtifact makes staged content the next version of the artifact. It creates no version if the latest one
	// has the same content. Modes: user_invalid_input when CheckArtifactName rejects the name, as in
	// StageArtifact, or for a "user:" name in a session without a user; not_found, fenced, turn_not_open; base_mismatch
	// with the fact offset when bytes are missing and no artifact of the user has the content; resource_quota.
	PutArtifact(ctx context.Context, h Lease, a Artifact) (Artifact, error)
	// GetArtifact returns a version of an artifact (0 means the latest). Modes: not_found.
	GetArtifact(ctx context.Context, ref session.Ref, name string, version int) (Artifact, error)
	// ReadArtifact returns bytes of the content from the offset on: at most ArtifactChunk, and none at the end.
	// Modes: not_found, also when no artifact has the content.
	ReadArtifact(ctx context.Context, ref session.Ref, c Content, offset int64) ([]byte, error)
	// ListArtifacts returns all versions of the artifacts of a session and of its user, by name and
	// version. Modes: not_found.
	ListArtifacts(ctx context.Context, ref session.Ref) ([]Artifact, error)
	// DeleteArtifact removes a version of an artifact (0 means all versions). Deleting a missing version succeeds.
	// A version number is not reused until the session is cleared. Content that no version uses is deleted. Modes:
	// not_found, fenced, turn_not_open; user_invalid_input for a user: artifact in a session without a user.
	DeleteArtifact(ctx context.Context, h Lease, name string, version int) error
}

// Content identifies a sequence of bytes by its digest and size.
type Content struct {
	SHA256 string // 64 lower-case hex digits
	Size   int64  // 0 to MaxArtifactBytes
}

// Artifact is one version of a file that a turn created.
type Artifact struct {
	Content
	Name      string // see CheckArtifactName
	MediaType string
	Version   int // from 1; the store assigns it
	Turn      string
	Created   time.Time
}
