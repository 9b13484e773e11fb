package redisstore

import (
	"context"
	"crypto/rand"
	_ "embed"
	"errors"
	"strconv"

	"github.com/redis/go-redis/v9"
	"google.golang.org/protobuf/proto"

	"github.com/troupe-dev/troupe/internal/wire/memorywire"
	"github.com/troupe-dev/troupe/pkg/failure"
	troupev1 "github.com/troupe-dev/troupe/pkg/gen/troupe/v1"
	"github.com/troupe-dev/troupe/pkg/memory"
	"github.com/troupe-dev/troupe/pkg/session"
)

//go:embed scripts/offer.lua
var offerSource string

//go:embed scripts/shelve.lua
var shelveSource string

//go:embed scripts/discard.lua
var discardSource string

var (
	offerScript   = script(turnSource, offerSource)
	shelveScript  = script(shelfSource, shelveSource)
	discardScript = script(shelfSource, discardSource)
)

// What a session was left that is about an artifact of its user has an id that begins so.
const (
	putting  = "put:"
	dropping = "drop:"
)

// putOfUser is PutArtifact under user:. The content is carried to where the user's are, in
// another slot, and then the version is left in the session, which knows who holds the turn,
// and made from there: so nobody who is fenced can make one.
func (s *Store) putOfUser(ctx context.Context, op string, h memory.Hold, a memory.Artifact) (memory.Artifact, error) {
	for range maxPending {
		user, err := s.carry(ctx, op, h, a)
		if err != nil {
			return memory.Artifact{}, err
		}
		r, err := s.leaveArtifact(ctx, op, h, user, pending{id: putting + rand.Text(), artifact: a})
		if err != nil {
			return memory.Artifact{}, err
		}
		switch r.status() {
		case "ok":
			put, err := artifact(r.text(1), r.text(2))
			if err != nil {
				return memory.Artifact{}, unreadable(op, err)
			}
			return put, s.unstage(ctx, op, h, a.Content)
		case "artifacts_full":
			return memory.Artifact{}, artifactsFull(op, "the user of session "+h.Ref.Session, h.Ref, r)
		case "pending", "gone": // others got on; the content is to be carried again
		case "decided":
			return memory.Artifact{}, metOthers(op)
		default:
			return memory.Artifact{}, refused(op, h, r)
		}
	}
	return memory.Artifact{}, metOthers(op)
}

// dropOfUser is DeleteArtifact under user:.
func (s *Store) dropOfUser(ctx context.Context, op string, h memory.Hold, name string, version int) error {
	r, err := s.look(ctx, op, h.Ref, offerScript, keys(h.Ref, h.TurnID), fence(ctx, h.Epoch))
	if err != nil {
		return err
	}
	if r.status() != "ok" {
		return refused(op, h, r)
	}
	user := r.text(1)
	if user == "" {
		return memory.ArtifactOfNobody(op, h.Ref, name)
	}
	for range maxPending {
		l := pending{id: dropping + rand.Text(), artifact: memory.Artifact{Name: name, Version: version}}
		r, err := s.leaveArtifact(ctx, op, h, user, l)
		if err != nil {
			return err
		}
		if r.status() != "pending" {
			return done(op, h, r, nil)
		}
	}
	return metOthers(op)
}

// leaveArtifact leaves a change of the user's artifacts in the session, and makes it; or it
// makes what was left there before, and then the answer is pending.
func (s *Store) leaveArtifact(ctx context.Context, op string, h memory.Hold, user string, l pending) (reply, error) {
	l.Ref = h.Ref
	l.artifact.Turn = h.TurnID
	stored, err := encoding.Marshal(memorywire.ArtifactToProto(l.artifact))
	if err != nil {
		return nil, unencodable(op, err)
	}
	r, err := s.run(ctx, op, h.Ref, leaveScript, keys(h.Ref, h.TurnID, "out"), fence(ctx, h.Epoch), l.id, stored, true)
	switch {
	case err != nil:
		return nil, err
	case r.status() == "pending":
		return r, s.settle(ctx, h.Ref)
	case r.status() != "ok":
		return r, nil
	}
	return s.answerArtifact(ctx, op, user, l)
}

// answerArtifact makes a change of the user's artifacts, or refuses it, and lets it be
// forgotten.
func (s *Store) answerArtifact(ctx context.Context, op, user string, l pending) (r reply, err error) {
	at := ofUser(l.Ref.Tenant, user)
	if l.putting() {
		r, err = s.shelve(ctx, op, at, l)
	} else {
		r, err = s.discard(ctx, op, at, l)
	}
	return s.answered(ctx, op, user, l, memory.ScopeUser, r, err)
}

func (s *Store) shelve(ctx context.Context, op string, at place, l pending) (reply, error) {
	stored, err := encoding.Marshal(memorywire.ArtifactToProto(l.artifact))
	if err != nil {
		return nil, unencodable(op, err)
	}
	a := l.artifact
	ks := append([]string{at("arts"), at("settled"), at("staged"), at("erased")}, at.content(a.Content)...)
	return s.run(ctx, op, l.Ref, shelveScript, ks, l.settled(), a.Name, a.SHA256, a.Size, stored, memory.MaxArtifacts, memory.MaxSessionArtifacts)
}

func (s *Store) discard(ctx context.Context, op string, at place, l pending) (reply, error) {
	stored, err := s.redis.HGetAll(ctx, at("arts")).Result()
	if err != nil {
		return nil, s.redis.Fault(op, err)
	}
	all, err := versions(stored)
	if err != nil {
		return nil, unreadable(op, err)
	}
	ks, args := removing(at, all, l.artifact.Name, l.artifact.Version)
	return s.run(ctx, op, l.Ref, discardScript, append([]string{at("arts"), at("settled"), at("erased")}, ks...), append([]any{l.settled()}, args...)...)
}

// leftArtifact reads a change of the user's artifacts that was left in a session.
func leftArtifact(ref session.Ref, id, stored string) (pending, error) {
	var p troupev1.Artifact
	err := proto.Unmarshal([]byte(stored), &p)
	l := pending{id: id, artifact: memorywire.ArtifactFromProto(&p)}
	l.Ref = ref
	return l, err
}

// sharedArtifacts are those of a session's user, by name and version; what is known of the
// session is its meta.
func (s *Store) sharedArtifacts(ctx context.Context, op string, ref session.Ref, meta map[string]string) ([]memory.Artifact, error) {
	if meta["user"] == "" {
		return nil, nil
	}
	if meta["left"] == "1" {
		if err := s.settle(ctx, ref); err != nil {
			return nil, err
		}
	}
	stored, err := s.redis.HGetAll(ctx, userKey(ref.Tenant, meta["user"], "arts")).Result()
	if err != nil {
		return nil, s.redis.Fault(op, err)
	}
	all, err := versions(stored)
	if err != nil {
		return nil, unreadable(op, err)
	}
	return all, nil
}

// readShared is ReadArtifact of what a user has. There is nothing when no version has it.
func (s *Store) readShared(ctx context.Context, op string, at place, c memory.Content, offset int64) (piece []byte, has bool, _ error) {
	var refs, bytes *redis.StringCmd
	_, err := s.redis.Pipelined(ctx, func(p redis.Pipeliner) error {
		refs = p.HGet(ctx, at(blob(c)), "refs")
		bytes = p.GetRange(ctx, at(pieceOf(c, offset)), offset%memory.ArtifactChunk, -1)
		return nil
	})
	if err != nil && !errors.Is(err, redis.Nil) {
		return nil, false, s.redis.Fault(op, err)
	}
	return []byte(bytes.Val()), number(refs.Val()) > 0, nil
}

// metOthers is for a change that others decided on, or held up each time it was made.
func metOthers(op string) error {
	return failure.New(failure.SystemNetwork, op, "the change met others of its session, and may have been made; repeat the call")
}

// removing are the keys and arguments of the versions of a name that discard of
// scripts/shelf.lua removes; 0 is all.
func removing(at place, stored []memory.Artifact, name string, version int) (ks []string, args []any) {
	for _, a := range stored {
		if a.Name == name && (version == 0 || a.Version == version) {
			content := at.content(a.Content)
			ks, args = append(ks, content...), append(args, versionField(a), a.Size, len(content))
		}
	}
	return ks, args
}

// versionField is that of a version in the hash of artifacts; shelf.lua makes the same.
func versionField(a memory.Artifact) string {
	return "v:" + a.Name + "\x00" + strconv.Itoa(a.Version)
}
