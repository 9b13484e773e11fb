package redisstore

import (
	"cmp"
	"context"
	_ "embed"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/redis/go-redis/v9"
	"google.golang.org/protobuf/proto"

	"github.com/troupe-dev/troupe/internal/wire/memorywire"
	"github.com/troupe-dev/troupe/pkg/failure"
	troupev1 "github.com/troupe-dev/troupe/pkg/gen/troupe/v1"
	"github.com/troupe-dev/troupe/pkg/memory"
	"github.com/troupe-dev/troupe/pkg/session"
)

//go:embed scripts/shelf.lua
var shelfSource string

//go:embed scripts/put.lua
var putSource string

//go:embed scripts/remove.lua
var removeSource string

var (
	putScript    = script(turnSource, shelfSource, putSource)
	removeScript = script(turnSource, shelfSource, removeSource)
)

// PutArtifact implements memory.Artifacts.
func (s *Store) PutArtifact(ctx context.Context, h memory.Hold, a memory.Artifact) (memory.Artifact, error) {
	const op = "memory.PutArtifact"
	if err := memory.CheckArtifactName(op, a.Name); err != nil {
		return memory.Artifact{}, err
	}
	if a.Size == 0 && a.SHA256 != emptyDigest {
		return memory.Artifact{}, wrongDigest(op, a.Content)
	}
	if memory.ScopeOf(a.Name) == memory.ScopeUser {
		return s.putOfUser(ctx, op, h, memory.Artifact{Content: a.Content, Name: a.Name, MediaType: a.MediaType})
	}
	stored, err := encoding.Marshal(memorywire.ArtifactToProto(memory.Artifact{Content: a.Content, Name: a.Name, MediaType: a.MediaType, Turn: h.TurnID}))
	if err != nil {
		return memory.Artifact{}, unencodable(op, err)
	}
	ks := append(keys(h.Ref, h.TurnID, "arts", "staged"), blobKeys(h.Ref, a.Content)...)
	r, err := s.run(ctx, op, h.Ref, putScript, ks, fence(ctx, h.Epoch), a.Name, a.SHA256, a.Size, stored, memory.MaxArtifacts, memory.MaxSessionArtifacts)
	if err != nil {
		return memory.Artifact{}, err
	}
	switch r.status() {
	case "ok":
		put, err := artifact(r.text(1), r.text(2))
		if err != nil {
			return memory.Artifact{}, unreadable(op, err)
		}
		return put, nil
	case "elsewhere":
		return memory.Artifact{}, memory.GoOnAt(op, number(r.text(1)))
	case "artifacts_full":
		return memory.Artifact{}, artifactsFull(op, "session "+h.Ref.Session, h.Ref, r)
	default:
		return memory.Artifact{}, refused(op, h, r)
	}
}

// GetArtifact implements memory.Artifacts.
func (s *Store) GetArtifact(ctx context.Context, ref session.Ref, name string, version int) (memory.Artifact, error) {
	const op = "memory.GetArtifact"
	stored, meta, err := s.artifacts(ctx, op, ref)
	if err == nil {
		err = readable(ctx, op, ref, meta)
	}
	if err == nil && memory.ScopeOf(name) == memory.ScopeUser {
		stored, err = s.sharedArtifacts(ctx, op, ref, meta)
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
func (s *Store) ListArtifacts(ctx context.Context, ref session.Ref) ([]memory.Artifact, error) {
	const op = "memory.ListArtifacts"
	own, meta, err := s.artifacts(ctx, op, ref)
	if err != nil {
		return nil, err
	}
	if err := readable(ctx, op, ref, meta); err != nil {
		return nil, err
	}
	shared, err := s.sharedArtifacts(ctx, op, ref, meta)
	return inOrderOfNames(append(own, shared...)), err
}

// artifacts are those that a session has itself, by name and version; what of its meta says
// whether anybody may read them, and whose it is; and as left whether something is still to be
// made that a turn left in it.
func (s *Store) artifacts(ctx context.Context, op string, ref session.Ref) ([]memory.Artifact, map[string]string, error) {
	var meta *redis.SliceCmd
	var left *redis.IntCmd
	var arts *redis.MapStringStringCmd
	fields := append([]string{"user"}, standing...)
	_, err := s.redis.Pipelined(ctx, func(p redis.Pipeliner) error {
		meta, left, arts = p.HMGet(ctx, key(ref, "meta"), fields...), p.Exists(ctx, key(ref, "out")), p.HGetAll(ctx, key(ref, "arts"))
		return nil
	})
	if err != nil {
		return nil, nil, s.redis.Fault(op, err)
	}
	all, err := versions(arts.Val())
	if err != nil {
		return nil, nil, unreadable(op, err)
	}
	known := map[string]string{"left": strconv.FormatInt(left.Val(), 10)}
	for i, name := range fields {
		known[name] = reply(meta.Val()).text(i)
	}
	return all, known, nil
}

// versions reads a hash of artifacts.
func versions(stored map[string]string) ([]memory.Artifact, error) {
	var all []memory.Artifact
	for field, value := range stored {
		version, ok := strings.CutPrefix(field, "v:")
		if !ok {
			continue
		}
		a, err := artifact(version[strings.LastIndexByte(version, 0)+1:], value)
		if err != nil {
			return nil, err
		}
		all = append(all, a)
	}
	return inOrderOfNames(all), nil
}

func inOrderOfNames(all []memory.Artifact) []memory.Artifact {
	slices.SortFunc(all, func(a, b memory.Artifact) int {
		return cmp.Or(cmp.Compare(a.Name, b.Name), cmp.Compare(a.Version, b.Version))
	})
	return all
}

// DeleteArtifact implements memory.Artifacts.
func (s *Store) DeleteArtifact(ctx context.Context, h memory.Hold, name string, version int) error {
	const op = "memory.DeleteArtifact"
	if memory.ScopeOf(name) == memory.ScopeUser {
		return s.dropOfUser(ctx, op, h, name, version)
	}
	stored, _, err := s.artifacts(ctx, op, h.Ref)
	if err != nil {
		return err
	}
	ks, args := removing(ofSession(h.Ref), stored, name, version)
	r, err := s.run(ctx, op, h.Ref, removeScript, append(keys(h.Ref, h.TurnID, "arts"), ks...), append([]any{fence(ctx, h.Epoch)}, args...)...)
	return done(op, h, r, err)
}

// artifact reads a version as shelf.lua stored it: digest, size, time, and what it is.
func artifact(version, stored string) (memory.Artifact, error) {
	parts := strings.SplitN(stored, " ", 4)
	if len(parts) != 4 {
		return memory.Artifact{}, fmt.Errorf("version %s of an artifact: %d parts and not 4", version, len(parts))
	}
	var p troupev1.Artifact
	if err := proto.Unmarshal([]byte(parts[3]), &p); err != nil {
		return memory.Artifact{}, fmt.Errorf("version %s of an artifact: %w", version, err)
	}
	a := memorywire.ArtifactFromProto(&p)
	a.Version, a.Created = int(number(version)), moment(parts[2])
	return a, nil
}

// artifactsFull is for who has so many: a session, or its user.
func artifactsFull(op, who string, ref session.Ref, r reply) error {
	return failure.Newf(failure.ResourceQuota, op, "%s has %s versions of artifacts of %s bytes, with what is staged; there may be %d of %d bytes: delete some",
		who, r.text(1), r.text(2), memory.MaxArtifacts, memory.MaxSessionArtifacts).
		With("session_id", ref.Session).With("artifacts", r.text(1)).With("bytes", r.text(2))
}
