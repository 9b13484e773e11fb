package redisstore

import (
	"context"
	_ "embed"
	"strconv"

	"github.com/troupe-dev/troupe/pkg/memory"
	"github.com/troupe-dev/troupe/pkg/session"
)

//go:embed scripts/admit.lua
var admitSource string

//go:embed scripts/carry.lua
var carrySource string

//go:embed scripts/unstage.lua
var unstageSource string

var (
	admitScript   = script(shelfSource, admitSource)
	carryScript   = script(carrySource)
	unstageScript = script(turnSource, unstageSource)
)

// place names the keys of a session, or of a user.
type place func(name string) string

func ofSession(ref session.Ref) place {
	return func(name string) string { return key(ref, name) }
}

func ofUser(tenant, user string) place {
	return func(name string) string { return userKey(tenant, user, name) }
}

// content are all keys of a content: its own, and those of its pieces.
func (at place) content(c memory.Content) []string {
	all := []string{at(blob(c))}
	for offset := int64(0); offset < c.Size; offset += memory.ArtifactChunk {
		all = append(all, at(pieceOf(c, offset)))
	}
	return all
}

// carry copies a content that a session has to where its user's are, unless it is there, and
// returns the user. A copy that no version is made of is forgotten like all that is staged. A
// fenced caller may make one, and no more: its bytes are those of its digest.
func (s *Store) carry(ctx context.Context, op string, h memory.Hold, a memory.Artifact) (user string, _ error) {
	c := a.Content
	r, err := s.look(ctx, op, h.Ref, offerScript, keys(h.Ref, h.TurnID, blob(c)), fence(ctx, h.Epoch))
	if err != nil {
		return "", err
	}
	if r.status() != "ok" {
		return "", refused(op, h, r)
	}
	user, stored := r.text(1), r.text(2)
	if user == "" {
		return "", memory.ArtifactOfNobody(op, h.Ref, a.Name)
	}
	at := ofUser(h.Ref.Tenant, user)
	r, err = s.run(ctx, op, h.Ref, admitScript, []string{at("arts"), at("staged"), at(blob(c)), at("erased")},
		c.Size, memory.MaxSessionArtifacts, stagedKept.Milliseconds(), memory.MaxArtifacts, nameOf(c), stored == strconv.FormatInt(c.Size, 10), h.Ref.Session)
	if err != nil {
		return "", err
	}
	switch r.status() {
	case "there":
		return user, nil
	case "missing":
		return "", memory.GoOnAt(op, number(stored))
	case "artifacts_full":
		return "", artifactsFull(op, "the user of session "+h.Ref.Session, h.Ref, r)
	}
	for offset := int64(0); offset < c.Size; offset += memory.ArtifactChunk {
		piece, err := s.redis.GetRange(ctx, key(h.Ref, pieceOf(c, offset)), 0, -1).Result()
		if err != nil {
			return "", s.redis.Fault(op, err)
		}
		if piece == "" { // it was forgotten since
			return "", memory.GoOnAt(op, 0)
		}
		if _, err := s.run(ctx, op, h.Ref, carryScript, []string{at(blob(c)), at(pieceOf(c, offset)), at("erased")}, piece, h.Ref.Session); err != nil {
			return "", err
		}
	}
	return user, nil
}

// unstage forgets a content in the session that its user has now. Somebody else who holds
// the turn by now may need it.
func (s *Store) unstage(ctx context.Context, op string, h memory.Hold, c memory.Content) error {
	ks := append(keys(h.Ref, h.TurnID, "staged"), blobKeys(h.Ref, c)...)
	_, err := s.run(ctx, op, h.Ref, unstageScript, ks, fence(ctx, h.Epoch), nameOf(c))
	return err
}
