package turns

import (
	"context"
	"crypto/sha256"
	_ "embed"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"errors"
	"slices"
	"strconv"
	"strings"

	redis "github.com/redis/go-redis/v9"

	"github.com/troupe-dev/troupe/internal/storeerror"
	"github.com/troupe-dev/troupe/internal/wire"
	"github.com/troupe-dev/troupe/pkg/conversation"
	"github.com/troupe-dev/troupe/pkg/failure"
	"github.com/troupe-dev/troupe/pkg/memory"
	"github.com/troupe-dev/troupe/services/memory/internal/redisstore/db"
	"github.com/troupe-dev/troupe/services/memory/internal/redisstore/delta"
	"github.com/troupe-dev/troupe/services/memory/internal/redisstore/journal"
	"github.com/troupe-dev/troupe/services/memory/internal/redisstore/messages"
	"github.com/troupe-dev/troupe/services/memory/internal/redisstore/outbox"
)

//go:embed scripts/commit.lua
var commitSource string

//go:embed scripts/check_size.lua
var checkSizeSource string

var (
	commitScript    = db.Register("commit", db.TurnSource, delta.Source, commitSource)
	checkSizeScript = db.Register("check_size", delta.Source, checkSizeSource)
)

// CommitStep implements memory.Turns.
func (t *Turns) CommitStep(ctx context.Context, c memory.Commit) (int64, error) {
	const op = "memory.CommitStep"
	if err := c.Check(op); err != nil {
		return 0, err
	}
	last := c.Base + int64(len(c.Messages))
	c.Result.Sequence = last
	own, shared := splitByOwner(c.State)
	call, err := t.newCommitCall(c, own, shared)
	if err != nil {
		return 0, db.NewUnencodableError(op, err)
	}
	for range outbox.MaxAttempts {
		r, err := t.tryCommit(ctx, op, c, call, shared)
		switch {
		case err != nil:
			return 0, err
		case r.Status() == "ok":
			return last, nil
		case r.Status() != "voided" && r.Status() != "pending":
			return 0, t.commitErrorFromReply(op, c, r)
		}
	}
	return 0, db.NewConcurrentChangeError(op)
}

// tryCommit tries once to commit a step, and applies its changes of shared state. If another caller has ended the
// attempt, the status of the reply is voided. If earlier changes had to be applied first, it is pending; the caller
// tries again then.
func (t *Turns) tryCommit(ctx context.Context, op string, c memory.Commit, call commitCall, shared map[string]json.RawMessage) (db.Reply, error) {
	lock, refusal, err := t.checkShared(ctx, op, c, shared)
	if err != nil {
		return nil, err
	}
	keys := db.TurnKeys(c.Ref, c.TurnID, db.JournalName(c.TurnID, c.Result.Step), "state", "out", db.RoundsName(c.Result.Agent))
	r, err := t.db.RunScript(ctx, op, c.Ref, commitScript, keys, call.args(lock.Nonce, refusal)...)
	if err != nil {
		return nil, err
	}
	if r.Status() == "pending" || r.Status() == "ok" && len(shared) > 0 { // also for a repeated commit, whose first call may have failed before the drain
		if err := t.outbox.Drain(ctx, c.Ref); err != nil {
			return nil, err
		}
	}
	if r.Status() != "ok" || r.Text(1) == "repeated" { // otherwise the change has removed the locks
		if err := t.outbox.Unlock(ctx, op, lock); err != nil {
			return nil, err
		}
	}
	return r, nil
}

// commitCall holds the arguments of commit.lua.
type commitCall struct {
	fixedArgs []any // arguments that every commit has
	changes   []any // changes of the session's own state
	journal   []any // journal entries in the commit
	bodies    []any // encoded bodies of the messages
}

// args returns the ARGV of commit.lua. It includes the index at which each part of variable length ends.
func (call commitCall) args(nonce string, refusal db.Reply) []any {
	args := append(slices.Clone(call.fixedArgs), nonce, refusal.Status(), refusal.Text(1), refusal.Text(2), refusal.Text(3))
	endOfChanges := len(args) + 2 + len(call.changes)
	args = append(args, endOfChanges, endOfChanges+len(call.journal))
	return slices.Concat(args, call.changes, call.journal, call.bodies)
}

// newCommitCall encodes a commit. It includes a digest of its outcome, result, messages, state and rounds, which
// identifies a repeated commit.
func (t *Turns) newCommitCall(c memory.Commit, own, shared map[string]json.RawMessage) (commitCall, error) {
	result, err := db.Encoding.Marshal(wire.ResultToProto(c.Result))
	if err != nil {
		return commitCall{}, err
	}
	call, size := commitCall{bodies: make([]any, len(c.Messages)), changes: delta.SortedPairs(own)}, 0
	parts := [][]byte{[]byte(c.Outcome), result}
	for i, m := range c.Messages {
		body, err := messages.EncodeBody(m)
		if err != nil {
			return commitCall{}, err
		}
		call.bodies[i], parts, size = body, append(parts, body), size+conversation.Size(m)
	}
	for _, p := range delta.SortedPairs(c.State) {
		parts = append(parts, []byte(p.(string)))
	}
	id, enqueued, err := outbox.EncodeCommit(c, shared)
	if err != nil {
		return commitCall{}, err
	}
	if call.journal, err = t.journal.EncodeKeptEntries(c.Journal); err != nil {
		return commitCall{}, err
	}
	rounds, named, err := journal.EncodeRounds(c.Rounds)
	if err != nil {
		return commitCall{}, err
	}
	if len(rounds) > 0 {
		parts = append(parts, rounds)
	}
	call.fixedArgs = []any{
		c.Epoch, c.Base, c.Result.Step, digest(parts), result,
		string(c.Outcome), string(c.Outcome.SessionState()), Retention.Milliseconds(),
		t.cfg.MaxMessages, t.cfg.MaxBytes, memory.MaxStateKeys, memory.MaxStateBytes,
		enqueued, id, needsUser(shared), size, waitingStepID(c), t.journal.RetentionAfterCommit().Milliseconds(), c.UntrustedSource(),
		rounds, named, c.Result.Agent,
	}
	return call, nil
}

// commitErrorFromReply returns the error for a reply that rejects a commit.
func (t *Turns) commitErrorFromReply(op string, c memory.Commit, r db.Reply) error {
	h := memory.Lease{Ref: c.Ref, TurnID: c.TurnID, Epoch: c.Epoch}
	switch r.Status() {
	case "step_committed":
		return db.NewStepCommittedError(op, h, c.Result.Step)
	case "continued":
		return storeerror.WaitingStepFirst(op, h.TurnID, c.Result.Step, int(db.ParseNumber(r.Text(1))))
	case "not_last":
		return storeerror.NotLastStep(op, h.TurnID, c.Result.Step)
	case "base_mismatch":
		return failure.Newf(failure.BaseMismatch, op, "session %s ends with message %s and not %d; load the history again and repeat the step",
			c.Ref.Session, r.Text(1), c.Base).
			With("base_sequence", strconv.FormatInt(c.Base, 10)).With("last_sequence", r.Text(1))
	case "no_entry":
		return storeerror.MissingEntry(op, c.Result.Step, journal.NumberOf(r.Text(1)))
	case "session_full":
		return t.limitExceededError(op, c.Ref, r)
	case "keys_changed":
		return storeerror.KeysChanged(op, strings.Split(r.Text(1), "\n"))
	case "state_full":
		return delta.NewLimitExceededError(op, memory.Scope(r.Text(3)), r)
	case "no_user":
		return delta.NewNoUserError(op, c.Ref)
	default:
		return db.TurnErrorFromReply(op, h, r)
	}
}

// checkShared checks whether the changes of shared state can be made. It does so before the commit, because that state
// is in other slots. If the commit expects revisions of keys, checkShared locks the keys. The refusal says why the
// changes cannot be made, as commit.lua returns it.
//
// Without a lock, concurrent commits may exceed the limit of a scope together, but a change that a commit has enqueued
// is never rejected.
func (t *Turns) checkShared(ctx context.Context, op string, c memory.Commit, shared map[string]json.RawMessage) (lock outbox.Lock, refusal db.Reply, _ error) {
	if len(shared) == 0 {
		return lock, nil, nil
	}
	user := ""
	if needsUser(shared) {
		var err error
		if user, err = t.db.HGet(ctx, db.Key(c.Ref, "meta"), "user").Result(); err != nil && !errors.Is(err, redis.Nil) {
			return lock, nil, t.db.Failure(op, err)
		}
	}
	if len(c.Expected) > 0 {
		return t.outbox.LockKeys(ctx, op, user, c, shared)
	}
	for scope, changes := range delta.SplitByScope(shared) {
		if scope == memory.ScopeUser && user == "" {
			continue // commit.lua rejects it
		}
		args := append([]any{memory.MaxStateKeys, memory.MaxStateBytes}, delta.SortedPairs(changes)...)
		r, err := t.db.RunReadOnlyScript(ctx, op, c.Ref, checkSizeScript, delta.ScopeKeys(c.Ref, user, scope), args...)
		if err != nil {
			return lock, nil, err
		}
		if r.Status() != "ok" {
			return lock, append(r, string(scope)), nil
		}
	}
	return lock, nil, nil
}

// splitByOwner splits changes into changes of the session's own state and changes of shared state.
func splitByOwner(changes map[string]json.RawMessage) (own, shared map[string]json.RawMessage) {
	own, shared = map[string]json.RawMessage{}, map[string]json.RawMessage{}
	for key, value := range changes {
		if memory.ScopeOf(key) == memory.ScopeSession {
			own[key] = value
		} else {
			shared[key] = value
		}
	}
	return own, shared
}

func needsUser(changes map[string]json.RawMessage) bool {
	for key := range changes {
		if memory.ScopeOf(key) == memory.ScopeUser {
			return true
		}
	}
	return false
}

// waitingStepID returns <turn>:<step> for a step with waiting calls (empty for any other step).
func waitingStepID(c memory.Commit) string {
	if len(c.Result.Pending) == 0 {
		return ""
	}
	return c.TurnID + ":" + strconv.Itoa(c.Result.Step)
}

// digest returns a digest of the parts. Each part is hashed with its length, so that moving bytes between parts
// changes the digest.
func digest(parts [][]byte) string {
	h := sha256.New()
	for _, p := range parts {
		h.Write(binary.BigEndian.AppendUint64(nil, uint64(len(p))))
		h.Write(p)
	}
	return hex.EncodeToString(h.Sum(nil))
}
