package outbox

import (
	"context"
	"maps"
	"slices"

	"github.com/troupe-dev/troupe/internal/wire/memorywire"
	"github.com/troupe-dev/troupe/pkg/memory"
	"github.com/troupe-dev/troupe/services/memory/internal/redisstore/contents"
	"github.com/troupe-dev/troupe/services/memory/internal/redisstore/db"
	"github.com/troupe-dev/troupe/services/memory/internal/redisstore/delta"
)

// applyCommitChange applies the change of a commit and removes it from the outbox. The change is never rejected,
// because its limits were checked with the commit.
func (o *Outbox) applyCommitChange(ctx context.Context, op, user string, u memory.StateUpdate) error {
	parts := map[memory.Scope][]any{}
	for name, value := range u.Delta {
		scope := memory.ScopeOf(name)
		parts[scope] = append(parts[scope], name, string(value))
	}
	c := Change{id: u.RequestID, StateUpdate: u}
	for scope, changes := range parts {
		args := append([]any{c.decisionID(), decisionRetention.Milliseconds()}, changes...)
		if _, err := o.runUnlocked(ctx, op, u.Ref, c.decisionID(), applyCommitScript, delta.ScopeKeys(u.Ref, user, scope, "decided", "erased"), args); err != nil {
			return err
		}
	}
	return o.removeChange(ctx, op, user, c, slices.Collect(maps.Keys(parts)))
}

// applyOrRejectState applies or rejects a change of state that a call enqueued, and removes it from the outbox.
func (o *Outbox) applyOrRejectState(ctx context.Context, op, user string, c Change) (db.Reply, error) {
	scope, err := memory.DeltaScope(op, c.Delta)
	if err != nil {
		return nil, err
	}
	args := append([]any{delta.RequestID(c.StateUpdate), delta.RequiredRevision(c.StateUpdate), c.decisionID()}, delta.RequestArgs(c.StateUpdate)...)
	r, err := o.runUnlocked(ctx, op, c.Ref, c.decisionID(), applyCallScript, delta.ScopeKeys(c.Ref, user, scope, "reqs", "erased", "decided"), args)
	return o.removeDecidedChange(ctx, op, user, c, scope, r, err)
}

// ApplyDirectly changes shared state for a call without a turn. It does not use the outbox, because there is no
// fence to check.
func (o *Outbox) ApplyDirectly(ctx context.Context, op, user string, u memory.StateUpdate, scope memory.Scope) (db.Reply, error) {
	args := append([]any{delta.RequestID(u), delta.RequiredRevision(u), ""}, delta.RequestArgs(u)...)
	return o.runUnlocked(ctx, op, u.Ref, "", applyCallScript, delta.ScopeKeys(u.Ref, user, scope, "reqs", "erased"), args)
}

// applyOrRejectArtifact applies or rejects a change of the user's artifacts, and removes it from the outbox.
func (o *Outbox) applyOrRejectArtifact(ctx context.Context, op, user string, c Change) (r db.Reply, err error) {
	at := db.UserLocation(c.Ref.Tenant, user)
	if c.isPut() {
		r, err = o.putArtifactVersion(ctx, op, at, c)
	} else {
		r, err = o.dropArtifactVersions(ctx, op, at, c)
	}
	return o.removeDecidedChange(ctx, op, user, c, memory.ScopeUser, r, err)
}

// putArtifactVersion adds content as the next version of an artifact of the user.
func (o *Outbox) putArtifactVersion(ctx context.Context, op string, at db.Location, c Change) (db.Reply, error) {
	stored, err := db.Encoding.Marshal(memorywire.ArtifactToProto(c.artifact))
	if err != nil {
		return nil, db.NewUnencodableError(op, err)
	}
	a := c.artifact
	keys := append([]string{at("arts"), at("decided"), at("staged"), at("erased")}, contents.ContentKeys(at, a.Content)...)
	return o.db.RunScript(ctx, op, c.Ref, putArtifactScript, keys,
		c.decisionID(), a.Name, a.SHA256, a.Size, stored, memory.MaxArtifacts, memory.MaxSessionArtifactBytes)
}

// dropArtifactVersions removes versions of an artifact of the user.
func (o *Outbox) dropArtifactVersions(ctx context.Context, op string, at db.Location, c Change) (db.Reply, error) {
	stored, err := o.db.HGetAll(ctx, at("arts")).Result()
	if err != nil {
		return nil, o.db.Failure(op, err)
	}
	all, err := contents.DecodeVersions(stored)
	if err != nil {
		return nil, db.NewUnreadableError(op, err)
	}
	removed, args := contents.RemovalArgs(at, all, c.artifact.Name, c.artifact.Version)
	keys := append([]string{at("arts"), at("decided"), at("erased")}, removed...)
	return o.db.RunScript(ctx, op, c.Ref, dropArtifactScript, keys, append([]any{c.decisionID()}, args...)...)
}
