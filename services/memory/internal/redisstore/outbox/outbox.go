// Package outbox applies changes of a session to the data that sessions share: app: and user: state, and the
// artifacts of the user. The shared data are in other slots than the session, so one script cannot write both.
// First a script checks the fence of the turn and enqueues the change in the session. Then the change is applied
// at its destination, which remembers the id of the change until the session has removed it. So the change is
// applied once, even if several callers drain the outbox or one of them fails in between.
package outbox

import (
	"cmp"
	"context"
	_ "embed"
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
	"google.golang.org/protobuf/proto"

	"github.com/troupe-dev/troupe/internal/wire/memorywire"
	"github.com/troupe-dev/troupe/pkg/failure"
	troupev1 "github.com/troupe-dev/troupe/pkg/gen/troupe/v1"
	"github.com/troupe-dev/troupe/pkg/memory"
	"github.com/troupe-dev/troupe/pkg/session"
	"github.com/troupe-dev/troupe/services/memory/internal/redisstore/contents"
	"github.com/troupe-dev/troupe/services/memory/internal/redisstore/db"
	"github.com/troupe-dev/troupe/services/memory/internal/redisstore/delta"
)

//go:embed scripts/enqueue.lua
var enqueueSource string

//go:embed scripts/apply_call.lua
var applyCallSource string

//go:embed scripts/apply_commit.lua
var applyCommitSource string

//go:embed scripts/lock_keys.lua
var lockKeysSource string

//go:embed scripts/unlock_keys.lua
var unlockKeysSource string

//go:embed scripts/void_commit.lua
var voidCommitSource string

//go:embed scripts/put_artifact.lua
var putArtifactSource string

//go:embed scripts/drop_artifact.lua
var dropArtifactSource string

var (
	enqueueScript      = db.Register("enqueue", db.TurnSource, delta.Source, delta.RequestSource, enqueueSource)
	applyCallScript    = db.Register("apply_call", db.TurnSource, delta.Source, delta.RequestSource, applyCallSource)
	applyCommitScript  = db.Register("apply_commit", delta.Source, applyCommitSource)
	lockKeysScript     = db.Register("lock_keys", delta.Source, lockKeysSource)
	unlockKeysScript   = db.Register("unlock_keys", unlockKeysSource)
	voidCommitScript   = db.Register("void_commit", voidCommitSource)
	putArtifactScript  = db.Register("put_artifact", contents.Source, putArtifactSource)
	dropArtifactScript = db.Register("drop_artifact", contents.Source, dropArtifactSource)
)

// decisionRetention is how long a destination remembers a change after it was removed from the outbox. No call
// that has read the change before takes that long.
const decisionRetention = 24 * time.Hour

// MaxAttempts bounds how often a call tries to enqueue its change. It must try again if earlier changes of the
// session have to be applied first. Each further attempt means that another caller made progress.
const MaxAttempts = 5

// Outbox stores the changes of shared data that sessions have not applied yet. It is safe for concurrent use.
type Outbox struct {
	db *db.DB
}

// New returns an Outbox backed by d.
func New(d *db.DB) *Outbox { return &Outbox{d} }

// Drain applies all changes in the outbox of a session in order, each once, and removes them.
func (o *Outbox) Drain(ctx context.Context, ref session.Ref) error {
	const op = "memory.DrainOutbox"
	var waiting *redis.MapStringStringCmd
	var user *redis.StringCmd
	_, err := o.db.Pipelined(ctx, func(p redis.Pipeliner) error {
		waiting, user = p.HGetAll(ctx, db.Key(ref, "out")), p.HGet(ctx, db.Key(ref, "meta"), "user")
		return nil
	})
	if err != nil && !errors.Is(err, redis.Nil) {
		return o.db.Failure(op, err)
	}
	all := make([]Change, 0, len(waiting.Val()))
	for id, stored := range waiting.Val() {
		c, err := decodeChange(ref, id, stored)
		if err != nil {
			return db.NewUnreadableError(op, err)
		}
		all = append(all, c)
	}
	slices.SortFunc(all, compareChanges)
	for _, c := range all {
		switch { // a rejection matters only to the caller that enqueued the change
		case c.isPut() || c.isDrop():
			_, err = o.applyOrRejectArtifact(ctx, op, user.Val(), c)
		case c.isCall():
			_, err = o.applyOrRejectState(ctx, op, user.Val(), c)
		default:
			err = o.applyCommitChange(ctx, op, user.Val(), c.StateUpdate)
		}
		if err != nil && !failure.Is(err, failure.SessionDeleted) { // a change of an erased user is dropped
			return err
		}
	}
	return nil
}

// EnqueueState enqueues a change of app: or user: state on behalf of a turn, and applies it. The status of the
// reply is pending if earlier changes had to be applied in each of MaxAttempts attempts. The caller may then try
// again.
func (o *Outbox) EnqueueState(ctx context.Context, op string, u memory.StateUpdate, scope memory.Scope) (db.Reply, error) {
	stored, err := db.Encoding.Marshal(memorywire.StateUpdateToProto(u))
	if err != nil {
		return nil, db.NewUnencodableError(op, err)
	}
	c := newStateChange(u)
	var r db.Reply
	for range MaxAttempts {
		r, err = o.enqueue(ctx, op, c, u.Epoch, stored, scope == memory.ScopeUser)
		if err != nil || r.Status() != "ok" && r.Status() != "pending" {
			return r, err
		}
		if r.Status() == "ok" {
			return o.applyOrRejectState(ctx, op, r.Text(1), c)
		}
		if err := o.Drain(ctx, u.Ref); err != nil {
			return nil, err
		}
	}
	return r, nil
}

// EnqueueArtifact enqueues a change of the user's artifacts on behalf of a turn, and applies it. The status of the
// reply is pending if earlier changes had to be applied first. The caller may then try again.
func (o *Outbox) EnqueueArtifact(ctx context.Context, op string, h memory.Lease, user string, c Change) (db.Reply, error) {
	c.Ref = h.Ref
	c.artifact.Turn = h.TurnID
	c.TurnID = h.TurnID
	stored, err := db.Encoding.Marshal(memorywire.ArtifactToProto(c.artifact))
	if err != nil {
		return nil, db.NewUnencodableError(op, err)
	}
	r, err := o.enqueue(ctx, op, c, h.Epoch, stored, true)
	switch {
	case err != nil:
		return nil, err
	case r.Status() == "pending":
		return r, o.Drain(ctx, h.Ref)
	case r.Status() != "ok":
		return r, nil
	}
	return o.applyOrRejectArtifact(ctx, op, user, c)
}

// enqueue stores a change in the outbox of its session, if the caller's epoch is not fenced.
func (o *Outbox) enqueue(ctx context.Context, op string, c Change, epoch int64, stored []byte, needsUser bool) (db.Reply, error) {
	keys := db.TurnKeys(c.Ref, c.TurnID, "out")
	return o.db.RunScript(ctx, op, c.Ref, enqueueScript, keys, db.FenceArg(ctx, epoch), c.id, stored, needsUser)
}

// removeChange removes a change that was applied or rejected: first from the outbox, and then from the decided
// changes of the scopes.
func (o *Outbox) removeChange(ctx context.Context, op, user string, c Change, scopes []memory.Scope) error {
	if err := o.db.HDel(ctx, db.Key(c.Ref, "out"), c.id).Err(); err != nil {
		return o.db.Failure(op, err)
	}
	for _, scope := range scopes {
		keys := delta.ScopeKeys(c.Ref, user, scope, "decided", "erased")
		if _, err := o.db.RunScript(ctx, op, c.Ref, applyCommitScript, keys, c.decisionID(), decisionRetention.Milliseconds()); err != nil {
			return err
		}
	}
	return nil
}

// removeDecidedChange removes a change that was applied, rejected, or dropped because the user was erased. It
// returns the reply and the error of that decision.
func (o *Outbox) removeDecidedChange(ctx context.Context, op, user string, c Change, scope memory.Scope, r db.Reply, err error) (db.Reply, error) {
	if err != nil && !failure.Is(err, failure.SessionDeleted) {
		return nil, err
	}
	return r, cmp.Or(o.removeChange(ctx, op, user, c, []memory.Scope{scope}), err)
}

// decodeChange decodes the change stored under id in the outbox of a session.
func decodeChange(ref session.Ref, id, stored string) (Change, error) {
	if c := (Change{id: id}); c.isPut() || c.isDrop() {
		var p troupev1.Artifact
		err := proto.Unmarshal([]byte(stored), &p)
		c.artifact, c.Ref = memorywire.ArtifactFromProto(&p), ref
		return c, err
	}
	var p troupev1.UpdateStateRequest
	err := proto.Unmarshal([]byte(stored), &p)
	return Change{id: id, StateUpdate: memorywire.StateUpdateFromProto(ref.Tenant, &p)}, err
}

// compareChanges orders changes as they were enqueued. A call enqueues its change only when the outbox is empty,
// so that change comes first. Commits are ordered by their epoch, which belongs to one turn, and then by the step
// number at the end of their request id.
func compareChanges(a, b Change) int {
	epochAndStep := func(c Change) (epoch, step int64) {
		if c.isCall() {
			return 0, 0
		}
		return c.Epoch, db.ParseNumber(c.RequestID[strings.LastIndexByte(c.RequestID, '/')+1:])
	}
	epochA, stepA := epochAndStep(a)
	epochB, stepB := epochAndStep(b)
	return cmp.Or(cmp.Compare(epochA, epochB), cmp.Compare(stepA, stepB))
}
