package artifacts

import (
	"context"
	"crypto/sha256"
	_ "embed"
	"encoding"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"time"

	redis "github.com/redis/go-redis/v9"

	"github.com/troupe-dev/troupe/internal/storeerror"
	"github.com/troupe-dev/troupe/pkg/failure"
	"github.com/troupe-dev/troupe/pkg/memory"
	"github.com/troupe-dev/troupe/pkg/session"
	"github.com/troupe-dev/troupe/services/memory/internal/redisstore/contents"
	"github.com/troupe-dev/troupe/services/memory/internal/redisstore/db"
)

//go:embed scripts/stage.lua
var stageSource string

//go:embed scripts/append.lua
var appendSource string

var (
	stageScript  = db.Register("stage", db.TurnSource, contents.Source, stageSource)
	appendScript = db.Register("append", db.TurnSource, appendSource)
)

// stagingRetention is how long staged content is kept while no artifact uses it.
const stagingRetention = 24 * time.Hour

// emptyDigest is the SHA-256 digest of empty content.
const emptyDigest = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"

// StageArtifact implements memory.Artifacts.
func (s *Artifacts) StageArtifact(ctx context.Context, h memory.Lease, c memory.Content) (int64, error) {
	stored, _, err := s.stageContent(ctx, "memory.StageArtifact", h, c)
	return stored, err
}

// stageContent begins to store content. It returns how many bytes are already stored, and the state of their
// digest.
func (s *Artifacts) stageContent(ctx context.Context, op string, h memory.Lease, c memory.Content) (int64, string, error) {
	if c.Size == 0 && c.SHA256 != emptyDigest {
		return 0, "", wrongDigestError(op, c)
	}
	r, err := s.db.RunScript(ctx, op, h.Ref, stageScript, db.TurnKeys(h.Ref, h.TurnID, contents.ContentKey(c), "staged"),
		db.FenceArg(ctx, h.Epoch), c.Size, memory.MaxSessionArtifactBytes, stagingRetention.Milliseconds(), memory.MaxArtifacts, contents.StagedName(c))
	if err != nil {
		return 0, "", err
	}
	switch r.Status() {
	case "ok":
		return db.ParseNumber(r.Text(1)), r.Text(2), nil
	case "artifacts_full":
		return 0, "", contents.NewLimitExceededError(op, "session "+h.Ref.Session, h.Ref, r)
	default:
		return 0, "", db.TurnErrorFromReply(op, h, r)
	}
}

// AppendArtifact implements memory.Artifacts. The state of the digest is stored with the content, so no replica of
// the service needs to read the earlier bytes again.
func (s *Artifacts) AppendArtifact(ctx context.Context, h memory.Lease, c memory.Content, offset int64, piece []byte) error {
	const op = "memory.AppendArtifact"
	stored, state, err := s.stageContent(ctx, op, h, c)
	if err != nil {
		return err
	}
	if next, err := c.CheckPiece(op, stored, offset, piece); !next {
		return err
	}
	end := offset + int64(len(piece))
	digest, err := resumeDigest(state)
	if err != nil {
		return db.NewUnreadableError(op, err)
	}
	digest.Write(piece)
	if state, err = suspendDigest(digest); err != nil {
		return db.NewUnreadableError(op, err)
	}
	wrong := end == c.Size && hex.EncodeToString(digest.Sum(nil)) != c.SHA256
	keys := db.TurnKeys(h.Ref, h.TurnID, "staged", contents.ContentKey(c), contents.PieceKey(c, offset))
	if wrong {
		keys, piece = append(db.TurnKeys(h.Ref, h.TurnID, "staged"), contents.ContentKeys(db.SessionLocation(h.Ref), c)...), nil
	}
	r, err := s.db.RunScript(ctx, op, h.Ref, appendScript, keys, db.FenceArg(ctx, h.Epoch), offset, end, state, piece, wrong, contents.StagedName(c))
	if err != nil {
		return err
	}
	switch {
	case r.Status() == "elsewhere":
		return storeerror.WrongOffset(op, db.ParseNumber(r.Text(1)))
	case r.Status() != "ok":
		return db.TurnErrorFromReply(op, h, r)
	case wrong:
		return wrongDigestError(op, c)
	}
	return nil
}

// ReadArtifact implements memory.Artifacts.
func (s *Artifacts) ReadArtifact(ctx context.Context, ref session.Ref, c memory.Content, offset int64) ([]byte, error) {
	const op = "memory.ReadArtifact"
	var deleted, schema, user, refs, piece *redis.StringCmd
	_, err := s.db.Pipelined(ctx, func(p redis.Pipeliner) error {
		deleted, schema = p.HGet(ctx, db.Key(ref, "meta"), "deleted"), p.HGet(ctx, db.Key(ref, "meta"), "schema")
		user, refs = p.HGet(ctx, db.Key(ref, "meta"), "user"), p.HGet(ctx, db.Key(ref, contents.ContentKey(c)), "refs")
		piece = p.GetRange(ctx, db.Key(ref, contents.PieceKey(c, offset)), offset%memory.ArtifactChunk, -1)
		return nil
	})
	if err != nil && !errors.Is(err, redis.Nil) {
		return nil, s.db.Failure(op, err)
	}
	if err := db.CheckSession(op, ref, map[string]string{"deleted": deleted.Val(), "schema": schema.Val()}); err != nil {
		return nil, err
	}
	if db.ParseNumber(refs.Val()) > 0 {
		return []byte(piece.Val()), nil
	}
	if user.Val() != "" {
		shared, has, err := s.readUserPiece(ctx, op, db.UserLocation(ref.Tenant, user.Val()), c, offset)
		if err != nil || has {
			return shared, err
		}
	}
	return nil, failure.Newf(failure.NotFound, op, "session %s has no artifact with the content %s; list its artifacts", ref.Session, c.SHA256).
		With("session_id", ref.Session).With("sha256", c.SHA256)
}

// resumeDigest returns a digest that continues from a state returned by suspendDigest. An empty state means that
// no bytes were hashed yet.
func resumeDigest(state string) (hash.Hash, error) {
	digest := sha256.New()
	if state == "" {
		return digest, nil
	}
	stored, ok := digest.(encoding.BinaryUnmarshaler)
	if !ok {
		return nil, fmt.Errorf("a digest of type %T cannot be resumed", digest)
	}
	return digest, stored.UnmarshalBinary([]byte(state))
}

// suspendDigest returns the encoded state of a digest.
func suspendDigest(digest hash.Hash) (string, error) {
	stored, ok := digest.(encoding.BinaryMarshaler)
	if !ok {
		return "", fmt.Errorf("a digest of type %T cannot be suspended", digest)
	}
	state, err := stored.MarshalBinary()
	return string(state), err
}

func wrongDigestError(op string, c memory.Content) error {
	return failure.Newf(failure.UserInvalidInput, op, "the bytes do not have the digest %s and were deleted; send them again, from the first", c.SHA256).
		With("sha256", c.SHA256)
}
