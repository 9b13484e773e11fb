package redisstore

import (
	"context"
	"crypto/sha256"
	_ "embed"
	binary "encoding"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/troupe-dev/troupe/pkg/failure"
	"github.com/troupe-dev/troupe/pkg/memory"
	"github.com/troupe-dev/troupe/pkg/session"
)

//go:embed scripts/stage.lua
var stageSource string

//go:embed scripts/piece.lua
var pieceSource string

var (
	stageScript = script(turnSource, shelfSource, stageSource)
	pieceScript = script(turnSource, pieceSource)
)

// stagedKept is how long a content waits for its artifact.
const stagedKept = 24 * time.Hour

// emptyDigest is that of no bytes.
const emptyDigest = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"

// StageArtifact implements memory.Artifacts.
func (s *Store) StageArtifact(ctx context.Context, h memory.Hold, c memory.Content) (int64, error) {
	stored, _, err := s.stage(ctx, "memory.StageArtifact", h, c)
	return stored, err
}

// stage returns how many bytes of a content are stored, and the state of their digest.
func (s *Store) stage(ctx context.Context, op string, h memory.Hold, c memory.Content) (int64, string, error) {
	if c.Size == 0 && c.SHA256 != emptyDigest {
		return 0, "", wrongDigest(op, c)
	}
	r, err := s.run(ctx, op, h.Ref, stageScript, keys(h.Ref, h.TurnID, blob(c), "staged"),
		fence(ctx, h.Epoch), c.Size, memory.MaxSessionArtifacts, stagedKept.Milliseconds(), memory.MaxArtifacts, nameOf(c))
	if err != nil {
		return 0, "", err
	}
	switch r.status() {
	case "ok":
		return number(r.text(1)), r.text(2), nil
	case "artifacts_full":
		return 0, "", artifactsFull(op, "session "+h.Ref.Session, h.Ref, r)
	default:
		return 0, "", refused(op, h, r)
	}
}

// AppendArtifact implements memory.Artifacts. The digest goes on from where the last piece
// left it, so that no replica reads the bytes again.
func (s *Store) AppendArtifact(ctx context.Context, h memory.Hold, c memory.Content, offset int64, piece []byte) error {
	const op = "memory.AppendArtifact"
	stored, state, err := s.stage(ctx, op, h, c)
	if err != nil {
		return err
	}
	if next, err := c.Takes(op, stored, offset, piece); !next {
		return err
	}
	end := offset + int64(len(piece))
	digest, err := resumed(state)
	if err != nil {
		return unreadable(op, err)
	}
	digest.Write(piece)
	if state, err = suspended(digest); err != nil {
		return unreadable(op, err)
	}
	wrong := end == c.Size && hex.EncodeToString(digest.Sum(nil)) != c.SHA256
	ks := keys(h.Ref, h.TurnID, "staged", blob(c), pieceOf(c, offset))
	if wrong {
		ks, piece = append(keys(h.Ref, h.TurnID, "staged"), blobKeys(h.Ref, c)...), nil
	}
	r, err := s.run(ctx, op, h.Ref, pieceScript, ks, fence(ctx, h.Epoch), offset, end, state, piece, wrong, nameOf(c))
	if err != nil {
		return err
	}
	switch {
	case r.status() == "elsewhere":
		return memory.GoOnAt(op, number(r.text(1)))
	case r.status() != "ok":
		return refused(op, h, r)
	case wrong:
		return wrongDigest(op, c)
	}
	return nil
}

// ReadArtifact implements memory.Artifacts.
func (s *Store) ReadArtifact(ctx context.Context, ref session.Ref, c memory.Content, offset int64) ([]byte, error) {
	const op = "memory.ReadArtifact"
	var gone, layout, user, refs, piece *redis.StringCmd
	at := offset % memory.ArtifactChunk
	_, err := s.redis.Pipelined(ctx, func(p redis.Pipeliner) error {
		gone, layout = p.HGet(ctx, key(ref, "meta"), "deleted"), p.HGet(ctx, key(ref, "meta"), "schema")
		user, refs = p.HGet(ctx, key(ref, "meta"), "user"), p.HGet(ctx, key(ref, blob(c)), "refs")
		piece = p.GetRange(ctx, key(ref, pieceOf(c, offset)), at, -1)
		return nil
	})
	if err != nil && !errors.Is(err, redis.Nil) {
		return nil, s.redis.Fault(op, err)
	}
	if err := usable(op, ref, map[string]string{"deleted": gone.Val(), "schema": layout.Val()}); err != nil {
		return nil, err
	}
	if number(refs.Val()) > 0 {
		return []byte(piece.Val()), nil
	}
	var shared []byte
	var has bool
	if user.Val() != "" {
		if shared, has, err = s.readShared(ctx, op, ofUser(ref.Tenant, user.Val()), c, offset); err != nil {
			return nil, err
		}
	}
	if !has {
		return nil, failure.Newf(failure.NotFound, op, "session %s has no artifact with the content %s; list its artifacts", ref.Session, c.SHA256).
			With("session_id", ref.Session).With("sha256", c.SHA256)
	}
	return shared, nil
}

// nameOf is the name of a content among those that are staged, and contentNamed its inverse.
func nameOf(c memory.Content) string { return c.SHA256 + "-" + strconv.FormatInt(c.Size, 10) }

func contentNamed(name string) memory.Content {
	sha, size, _ := strings.Cut(name, "-")
	return memory.Content{SHA256: sha, Size: number(size)}
}

// blob is the key of a content in its session, and pieceOf that of its piece at the offset.
func blob(c memory.Content) string { return "blob:" + nameOf(c) }

func pieceOf(c memory.Content, offset int64) string {
	return blob(c) + ":" + strconv.FormatInt(offset/memory.ArtifactChunk, 10)
}

// blobKeys are all keys of a content of a session: its own, and those of its pieces.
func blobKeys(ref session.Ref, c memory.Content) []string { return ofSession(ref).content(c) }

// contentsOf are the keys of the contents of artifacts.
func contentsOf(ref session.Ref, stored []memory.Artifact) []string {
	seen := map[memory.Content]bool{}
	var all []string
	for _, a := range stored {
		if !seen[a.Content] {
			seen[a.Content] = true
			all = append(all, blobKeys(ref, a.Content)...)
		}
	}
	return slices.Clip(all)
}

// resumed is a digest in a state that suspended returned; at its beginning for an empty one.
func resumed(state string) (hash.Hash, error) {
	digest := sha256.New()
	if state == "" {
		return digest, nil
	}
	stored, ok := digest.(binary.BinaryUnmarshaler)
	if !ok {
		return nil, fmt.Errorf("a digest of type %T cannot be resumed", digest)
	}
	return digest, stored.UnmarshalBinary([]byte(state))
}

func suspended(digest hash.Hash) (string, error) {
	stored, ok := digest.(binary.BinaryMarshaler)
	if !ok {
		return "", fmt.Errorf("a digest of type %T cannot be suspended", digest)
	}
	state, err := stored.MarshalBinary()
	return string(state), err
}

func wrongDigest(op string, c memory.Content) error {
	return failure.Newf(failure.UserInvalidInput, op, "the bytes do not have the digest %s and were forgotten; send them again, from the first", c.SHA256).
		With("sha256", c.SHA256)
}
