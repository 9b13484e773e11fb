package artifacts

import (
	"context"
	_ "embed"
	"errors"
	"strconv"

	redis "github.com/redis/go-redis/v9"

	"github.com/troupe-dev/troupe/internal/storeerror"
	"github.com/troupe-dev/troupe/pkg/memory"
	"github.com/troupe-dev/troupe/pkg/session"
	"github.com/troupe-dev/troupe/services/memory/internal/redisstore/contents"
	"github.com/troupe-dev/troupe/services/memory/internal/redisstore/db"
	"github.com/troupe-dev/troupe/services/memory/internal/redisstore/outbox"
)

//go:embed scripts/user.lua
var userSource string

//go:embed scripts/stage_for_user.lua
var stageForUserSource string

//go:embed scripts/copy_piece.lua
var copyPieceSource string

//go:embed scripts/unstage.lua
var unstageSource string

var (
	userScript         = db.Register("user", db.TurnSource, userSource)
	stageForUserScript = db.Register("stage_for_user", contents.Source, stageForUserSource)
	copyPieceScript    = db.Register("copy_piece", copyPieceSource)
	unstageScript      = db.Register("unstage", db.TurnSource, unstageSource)
)

// putUserArtifact implements PutArtifact for an artifact of the user. The user's data are in another slot than the
// session. putUserArtifact first copies the content there. Then it enqueues the version in the session, where the
// fence of the turn is checked, and applies it. So a fenced caller cannot create a version.
func (s *Artifacts) putUserArtifact(ctx context.Context, op string, h memory.Lease, a memory.Artifact) (memory.Artifact, error) {
	for range outbox.MaxAttempts {
		user, err := s.copyToUser(ctx, op, h, a)
		if err != nil {
			return memory.Artifact{}, err
		}
		r, err := s.outbox.EnqueueArtifact(ctx, op, h, user, outbox.NewPutChange(a))
		if err != nil {
			return memory.Artifact{}, err
		}
		switch r.Status() {
		case "ok":
			put, err := decodePutReply(op, r)
			if err != nil {
				return memory.Artifact{}, err
			}
			return put, s.removeStaged(ctx, op, h, a.Content)
		case "artifacts_full":
			return memory.Artifact{}, contents.NewLimitExceededError(op, "the user of session "+h.Ref.Session, h.Ref, r)
		case "pending", "gone": // other callers made progress; the content must be copied again
		case "decided":
			return memory.Artifact{}, db.NewConcurrentChangeError(op)
		default:
			return memory.Artifact{}, db.TurnErrorFromReply(op, h, r)
		}
	}
	return memory.Artifact{}, db.NewConcurrentChangeError(op)
}

// deleteUserArtifact implements DeleteArtifact for an artifact of the user.
func (s *Artifacts) deleteUserArtifact(ctx context.Context, op string, h memory.Lease, name string, version int) error {
	r, err := s.db.RunReadOnlyScript(ctx, op, h.Ref, userScript, db.TurnKeys(h.Ref, h.TurnID), db.FenceArg(ctx, h.Epoch))
	if err != nil {
		return err
	}
	if r.Status() != "ok" {
		return db.TurnErrorFromReply(op, h, r)
	}
	user := r.Text(1)
	if user == "" {
		return storeerror.NoUser(op, h.Ref, name)
	}
	for range outbox.MaxAttempts {
		r, err := s.outbox.EnqueueArtifact(ctx, op, h, user, outbox.NewDropChange(name, version))
		if err != nil {
			return err
		}
		if r.Status() != "pending" {
			return db.CheckWriteReply(op, h, r, nil)
		}
	}
	return db.NewConcurrentChangeError(op)
}

// copyToUser copies content from a session to its user, unless the user already has it, and returns the user. A
// copy that no version uses expires like all staged content. A fenced caller may still make a copy. That is
// harmless, because the digest determines the bytes.
func (s *Artifacts) copyToUser(ctx context.Context, op string, h memory.Lease, a memory.Artifact) (user string, _ error) {
	c, own := a.Content, db.SessionLocation(h.Ref)
	r, err := s.db.RunReadOnlyScript(ctx, op, h.Ref, userScript, db.TurnKeys(h.Ref, h.TurnID, contents.ContentKey(c)), db.FenceArg(ctx, h.Epoch))
	if err != nil {
		return "", err
	}
	if r.Status() != "ok" {
		return "", db.TurnErrorFromReply(op, h, r)
	}
	user, stored := r.Text(1), r.Text(2)
	if user == "" {
		return "", storeerror.NoUser(op, h.Ref, a.Name)
	}
	at, complete := db.UserLocation(h.Ref.Tenant, user), stored == strconv.FormatInt(c.Size, 10)
	r, err = s.db.RunScript(ctx, op, h.Ref, stageForUserScript, []string{at("arts"), at("staged"), at(contents.ContentKey(c)), at("erased")},
		c.Size, memory.MaxSessionArtifactBytes, stagingRetention.Milliseconds(), memory.MaxArtifacts, contents.StagedName(c), complete, h.Ref.Session)
	if err != nil {
		return "", err
	}
	switch r.Status() {
	case "there":
		return user, nil
	case "missing":
		return "", storeerror.WrongOffset(op, db.ParseNumber(stored))
	case "artifacts_full":
		return "", contents.NewLimitExceededError(op, "the user of session "+h.Ref.Session, h.Ref, r)
	}
	for offset := int64(0); offset < c.Size; offset += memory.ArtifactChunk {
		piece, err := s.db.GetRange(ctx, own(contents.PieceKey(c, offset)), 0, -1).Result()
		if err != nil {
			return "", s.db.Failure(op, err)
		}
		if piece == "" { // the content has expired in the meantime
			return "", storeerror.WrongOffset(op, 0)
		}
		keys := []string{at(contents.ContentKey(c)), at(contents.PieceKey(c, offset)), at("erased")}
		if _, err := s.db.RunScript(ctx, op, h.Ref, copyPieceScript, keys, piece, h.Ref.Session); err != nil {
			return "", err
		}
	}
	return user, nil
}

// removeStaged removes staged content from the session once its user has the content. The script checks the epoch,
// because a new holder of the turn may need the content.
func (s *Artifacts) removeStaged(ctx context.Context, op string, h memory.Lease, c memory.Content) error {
	keys := append(db.TurnKeys(h.Ref, h.TurnID, "staged"), contents.ContentKeys(db.SessionLocation(h.Ref), c)...)
	_, err := s.db.RunScript(ctx, op, h.Ref, unstageScript, keys, db.FenceArg(ctx, h.Epoch), contents.StagedName(c))
	return err
}

// readUserArtifacts returns the artifacts of a session's user, sorted by name and version. meta has the fields
// that readSessionArtifacts returned.
func (s *Artifacts) readUserArtifacts(ctx context.Context, op string, ref session.Ref, meta map[string]string) ([]memory.Artifact, error) {
	if meta["user"] == "" {
		return nil, nil
	}
	if meta[outboxPendingField] == "1" {
		if err := s.outbox.Drain(ctx, ref); err != nil {
			return nil, err
		}
	}
	stored, err := s.db.HGetAll(ctx, db.UserKey(ref.Tenant, meta["user"], "arts")).Result()
	if err != nil {
		return nil, s.db.Failure(op, err)
	}
	all, err := contents.DecodeVersions(stored)
	if err != nil {
		return nil, db.NewUnreadableError(op, err)
	}
	return all, nil
}

// readUserPiece implements ReadArtifact for content of a user. It reports false if no version uses the content.
func (s *Artifacts) readUserPiece(ctx context.Context, op string, at db.Location, c memory.Content, offset int64) (piece []byte, has bool, _ error) {
	var refs, bytes *redis.StringCmd
	_, err := s.db.Pipelined(ctx, func(p redis.Pipeliner) error {
		refs = p.HGet(ctx, at(contents.ContentKey(c)), "refs")
		bytes = p.GetRange(ctx, at(contents.PieceKey(c, offset)), offset%memory.ArtifactChunk, -1)
		return nil
	})
	if err != nil && !errors.Is(err, redis.Nil) {
		return nil, false, s.db.Failure(op, err)
	}
	return []byte(bytes.Val()), db.ParseNumber(refs.Val()) > 0, nil
}
