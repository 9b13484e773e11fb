package outbox

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/troupe-dev/troupe/internal/retry"
	"github.com/troupe-dev/troupe/pkg/memory"
	"github.com/troupe-dev/troupe/pkg/session"
	"github.com/troupe-dev/troupe/services/memory/internal/redisstore/db"
	"github.com/troupe-dev/troupe/services/memory/internal/redisstore/delta"
)

// A commit that expects revisions of shared keys locks all shared keys that it changes, then commits in its session,
// and its change removes the locks. A caller that finds a lock waits for lockGrace. After that it applies the change,
// if the commit was made, or else makes sure in the other session that it can no longer be made, and removes the lock.
// So a process that is lost between two of these writes blocks nobody for longer than lockGrace.
const (
	lockGrace   = time.Second
	maxLockWait = 20 * time.Millisecond // longest pause between two reads of a lock
)

// Lock holds the shared keys that one attempt to commit a step has locked. The zero Lock holds none.
type Lock struct {
	ref   session.Ref
	user  string
	id    string // decision id of the commit's change
	Nonce string // identifies the attempt
	keys  map[memory.Scope][]any
}

// LockKeys locks the shared keys that a commit changes, if they have the expected revisions. Otherwise the refusal
// says why not, with a status that commit.lua returns to its caller.
func (o *Outbox) LockKeys(ctx context.Context, op, user string, c memory.Commit, shared map[string]json.RawMessage) (_ Lock, refusal db.Reply, _ error) {
	id := Change{id: commitID(c), StateUpdate: memory.StateUpdate{Ref: c.Ref}}.decisionID()
	l := Lock{ref: c.Ref, user: user, id: id, Nonce: rand.Text(), keys: map[memory.Scope][]any{}}
	parts := delta.SplitByScope(shared)
	for _, scope := range []memory.Scope{memory.ScopeUser, memory.ScopeApp} {
		if parts[scope] == nil || scope == memory.ScopeUser && user == "" {
			continue // commit.lua rejects a change of user: state without a user
		}
		args := []any{id, l.Nonce, memory.MaxStateKeys, memory.MaxStateBytes, 0}
		for _, key := range slices.Sorted(maps.Keys(c.Expected)) {
			if memory.ScopeOf(key) == scope {
				args = append(args, key, strconv.FormatInt(c.Expected[key], 10))
			}
		}
		args[4] = len(args)
		keys := delta.ScopeKeys(c.Ref, user, scope, "erased")
		r, err := o.runUnlocked(ctx, op, c.Ref, id, lockKeysScript, keys, append(args, delta.SortedPairs(parts[scope])...))
		if err != nil {
			return l, nil, err
		}
		if r.Status() != "ok" {
			return l, append(r, string(scope)), nil
		}
		for key := range parts[scope] {
			l.keys[scope] = append(l.keys[scope], key)
		}
	}
	return l, nil, nil
}

// Unlock removes the locks of an attempt that was refused.
func (o *Outbox) Unlock(ctx context.Context, op string, l Lock) error {
	for scope, keys := range l.keys {
		if err := o.unlock(ctx, op, l.ref, delta.ScopeKeys(l.ref, l.user, scope), l.id+" "+l.Nonce+" ", keys...); err != nil {
			return err
		}
	}
	return nil
}

func (o *Outbox) unlock(ctx context.Context, op string, ref session.Ref, scope []string, prefix string, keys ...any) error {
	_, err := o.db.RunScript(ctx, op, ref, unlockKeysScript, scope, append([]any{prefix}, keys...)...)
	return err
}

// runUnlocked runs a script on the keys of a shared scope. While another commit has locked what the script changes, it
// waits, and after lockGrace it decides about that commit. It does not wait for another attempt of the own change.
func (o *Outbox) runUnlocked(ctx context.Context, op string, ref session.Ref, own string, script *redis.Script, keys []string, args []any) (db.Reply, error) {
	for wait := time.Millisecond; ; wait = min(2*wait, maxLockWait) {
		r, err := o.db.RunScript(ctx, op, ref, script, keys, args...)
		if err != nil || r.Status() != "locked" {
			return r, err
		}
		lock := parseLock(ref.Tenant, r.Text(1))
		if age := time.Duration(db.ParseNumber(r.Text(3))) * time.Millisecond; age < lockGrace && lock.id() != own {
			if err := retry.Sleep(ctx, wait); err != nil {
				return nil, o.db.Failure(op, err)
			}
			continue
		}
		if err := o.decide(ctx, op, lock, keys[:1], r.Text(2)); err != nil {
			return nil, err
		}
	}
}

// heldLock is a lock as it is stored: '<session>/<turn>/<step> <nonce> <time>'.
type heldLock struct {
	ref             session.Ref
	turn, step      string
	change, attempt string // ids of the change and of the attempt
}

// id returns the decision id of the change.
func (l heldLock) id() string { return l.ref.Session + "/" + l.change }

func parseLock(tenant, stored string) heldLock {
	id, rest, _ := strings.Cut(stored, " ")
	nonce, _, _ := strings.Cut(rest, " ")
	name, change, _ := strings.Cut(id, "/")
	turn, step, _ := strings.Cut(change, "/")
	return heldLock{ref: session.Ref{Tenant: tenant, Session: name}, turn: turn, step: step, change: change, attempt: nonce}
}

// decide applies the change of a commit that has locked a key of a scope. If the commit was not made, decide makes sure
// that this attempt is never made, and removes the lock.
func (o *Outbox) decide(ctx context.Context, op string, l heldLock, scope []string, key string) error {
	r, err := o.db.RunScript(ctx, op, l.ref, voidCommitScript, db.TurnKeys(l.ref, l.turn, "out"), l.change, l.step, l.attempt)
	if err != nil {
		return err
	}
	if r.Status() != "committed" {
		return o.unlock(ctx, op, l.ref, scope, l.id()+" "+l.attempt+" ", key)
	}
	c, err := decodeChange(l.ref, l.change, r.Text(1))
	if err != nil {
		return db.NewUnreadableError(op, err)
	}
	return o.applyCommitChange(ctx, op, r.Text(2), c.StateUpdate)
}
