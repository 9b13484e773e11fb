// Package artifacts stores the artifacts of sessions and users, and their contents.
package artifacts

import (
	"context"
	_ "embed"
	"slices"
	"strconv"

	redis "github.com/redis/go-redis/v9"

	"github.com/troupe-dev/troupe/internal/storeerror"
	"github.com/troupe-dev/troupe/internal/wire/memorywire"
	"github.com/troupe-dev/troupe/pkg/failure"
	"github.com/troupe-dev/troupe/pkg/memory"
	"github.com/troupe-dev/troupe/pkg/session"
	"github.com/troupe-dev/troupe/services/memory/internal/redisstore/contents"
	"github.com/troupe-dev/troupe/services/memory/internal/redisstore/db"
	"github.com/troupe-dev/troupe/services/memory/internal/redisstore/outbox"
)

//go:embed scripts/put.lua
var putSource string

//go:embed scripts/remove.lua
var removeSource string

var (
	putScript    = db.Register("put", db.TurnSource, contents.Source, putSource)
	removeScript = db.Register("remove", db.TurnSource, contents.Source, removeSource)
)

// Artifacts implements memory.Artifacts. It is safe for concurrent use.
type Artifacts struct {
	db     *db.DB
	outbox *outbox.Outbox
}

// New returns an artifact store backed by d, which changes user artifacts through o.
func New(d *db.DB, o *outbox.Outbox) *Artifacts { return &Artifacts{d, o} }

// PutArtifact implements memory.Artifacts.
func (s *Artifacts) PutArtifact(ctx context.Context, h memory.Lease, a memory.Artifact) (memory.Artifact, error) {
	const op = "memory.PutArtifact"
	if err := memory.CheckArtifactName(op, a.Name); err != nil {
		return memory.Artifact{}, err
	}
	if a.Size == 0 && a.SHA256 != emptyDigest {
		return memory.Artifact{}, wrongDigestError(op, a.Content)
	}
	if memory.ScopeOf(a.Name) == memory.ScopeUser {
		return s.putUserArtifact(ctx, op, h, memory.Artifact{Content: a.Content, Name: a.Name, MediaType: a.MediaType})
	}
	stored, err := db.Encoding.Marshal(memorywire.ArtifactToProto(memory.Artifact{Content: a.Content, Name: a.Name, MediaType: a.MediaType, Turn: h.TurnID}))
	if err != nil {
		return memory.Artifact{}, db.NewUnencodableError(op, err)
	}
	keys := append(db.TurnKeys(h.Ref, h.TurnID, "arts", "staged"), contents.ContentKeys(db.SessionLocation(h.Ref), a.Content)...)
	r, err := s.db.RunScript(ctx, op, h.Ref, putScript, keys,
		db.FenceArg(ctx, h.Epoch), a.Name, a.SHA256, a.Size, stored, memory.MaxArtifacts, memory.MaxSessionArtifactBytes)
	if err != nil {
		return memory.Artifact{}, err
	}
	switch r.Status() {
	case "ok":
		return decodePutReply(op, r)
	case "elsewhere":
		return memory.Artifact{}, storeerror.WrongOffset(op, db.ParseNumber(r.Text(1)))
	case "artifacts_full":
		return memory.Artifact{}, contents.NewLimitExceededError(op, "session "+h.Ref.Session, h.Ref, r)
	default:
		return memory.Artifact{}, db.TurnErrorFromReply(op, h, r)
	}
}

// decodePutReply decodes the version in the reply of a script that stored it.
func decodePutReply(op string, r db.Reply) (memory.Artifact, error) {
	put, err := contents.DecodeVersion(r.Text(1), r.Text(2))
	if err != nil {
		return memory.Artifact{}, db.NewUnreadableError(op, err)
	}
	return put, nil
}

// GetArtifact implements memory.Artifacts.
func (s *Artifacts) GetArtifact(ctx context.Context, ref session.Ref, name string, version int) (memory.Artifact, error) {
	const op = "memory.GetArtifact"
	stored, meta, err := s.readSessionArtifacts(ctx, op, ref)
	if err == nil {
		err = db.CheckReader(ctx, op, ref, meta)
	}
	if err == nil && memory.ScopeOf(name) == memory.ScopeUser {
		stored, err = s.readUserArtifacts(ctx, op, ref, meta)
	}
	if err != nil {
		return memory.Artifact{}, err
	}
	for _, a := range slices.Backward(stored) {
		if a.Name == name && (version == 0 || a.Version == version) {
			return a, nil
		}
	}
	return memory.Artifact{}, failure.Newf(failure.NotFound, op, "session %s has no such version of the artifact %q; list its artifacts", ref.Session, name).
		With("session_id", ref.Session).With("name", name).With("version", strconv.Itoa(version))
}

// ListArtifacts implements memory.Artifacts.
func (s *Artifacts) ListArtifacts(ctx context.Context, ref session.Ref) ([]memory.Artifact, error) {
	const op = "memory.ListArtifacts"
	own, meta, err := s.readSessionArtifacts(ctx, op, ref)
	if err != nil {
		return nil, err
	}
	if err := db.CheckReader(ctx, op, ref, meta); err != nil {
		return nil, err
	}
	shared, err := s.readUserArtifacts(ctx, op, ref, meta)
	return contents.SortArtifacts(append(own, shared...)), err
}

// DeleteArtifact implements memory.Artifacts.
func (s *Artifacts) DeleteArtifact(ctx context.Context, h memory.Lease, name string, version int) error {
	const op = "memory.DeleteArtifact"
	if memory.ScopeOf(name) == memory.ScopeUser {
		return s.deleteUserArtifact(ctx, op, h, name, version)
	}
	stored, _, err := s.readSessionArtifacts(ctx, op, h.Ref)
	if err != nil {
		return err
	}
	removed, args := contents.RemovalArgs(db.SessionLocation(h.Ref), stored, name, version)
	keys := append(db.TurnKeys(h.Ref, h.TurnID, "arts"), removed...)
	r, err := s.db.RunScript(ctx, op, h.Ref, removeScript, keys, append([]any{db.FenceArg(ctx, h.Epoch)}, args...)...)
	return db.CheckWriteReply(op, h, r, err)
}

// ListSessionArtifacts returns the artifacts of a session without the artifacts of its user, sorted by name and
// version.
func (s *Artifacts) ListSessionArtifacts(ctx context.Context, op string, ref session.Ref) ([]memory.Artifact, error) {
	stored, _, err := s.readSessionArtifacts(ctx, op, ref)
	return stored, err
}

// outboxPendingField is the field that readSessionArtifacts sets to 1 if the outbox of the session has changes.
const outboxPendingField = "left"

// readSessionArtifacts returns the artifacts of a session without the artifacts of its user, sorted by name and
// version. It also returns the fields of the session's meta hash that name its user and say who may read it. The
// field "left" is 1 if the outbox of the session has changes.
func (s *Artifacts) readSessionArtifacts(ctx context.Context, op string, ref session.Ref) ([]memory.Artifact, map[string]string, error) {
	var meta *redis.SliceCmd
	var left *redis.IntCmd
	var arts *redis.MapStringStringCmd
	fields := append([]string{"user"}, db.StatusFields...)
	_, err := s.db.Pipelined(ctx, func(p redis.Pipeliner) error {
		meta = p.HMGet(ctx, db.Key(ref, "meta"), fields...)
		left = p.Exists(ctx, db.Key(ref, "out"))
		arts = p.HGetAll(ctx, db.Key(ref, "arts"))
		return nil
	})
	if err != nil {
		return nil, nil, s.db.Failure(op, err)
	}
	all, err := contents.DecodeVersions(arts.Val())
	if err != nil {
		return nil, nil, db.NewUnreadableError(op, err)
	}
	known := db.Reply(meta.Val()).FieldsByName(fields)
	known[outboxPendingField] = strconv.FormatInt(left.Val(), 10)
	return all, known, nil
}
