package erasure

import (
	"context"
	_ "embed"
	"strings"
	"time"

	"github.com/troupe-dev/troupe/pkg/memory"
	"github.com/troupe-dev/troupe/pkg/session"
	"github.com/troupe-dev/troupe/services/memory/internal/redisstore/db"
	"github.com/troupe-dev/troupe/services/memory/internal/redisstore/index"
)

//go:embed scripts/delete.lua
var deleteSource string

var deleteScript = db.Register("delete", deleteSource)

// DeleteSession implements memory.Sessions.
func (e *Eraser) DeleteSession(ctx context.Context, ref session.Ref) (memory.ErasureReport, error) {
	_, mark, err := e.delete(ctx, ref, 0)
	if err != nil {
		return memory.ErasureReport{}, err
	}
	return deletionReport(ref, mark), nil
}

// delete deletes a session. If age is set, it skips a session with activity in that time or with a valid lease. It
// returns whether the session was deleted, and the tombstone.
func (e *Eraser) delete(ctx context.Context, ref session.Ref, age time.Duration) (bool, map[string]string, error) {
	const op = "memory.DeleteSession"
	keys := []string{db.Key(ref, "meta"), db.Key(ref, "log"), db.Key(ref, "state"), db.Key(ref, "reqs")}
	r, err := e.db.RunScript(ctx, op, ref, deleteScript, keys, age.Milliseconds())
	if err != nil {
		return false, nil, err
	}
	switch mark := r.Hash(1); r.Status() {
	case "ok": // also when an earlier deletion was interrupted
		return true, mark, e.FinishDeletion(ctx, op, ref, mark)
	case "gone", "active":
		return false, mark, nil
	default:
		return false, nil, db.SessionErrorFromReply(op, ref, r)
	}
}

// countPrefix is the prefix of the tombstone fields that count what was removed, by kind.
const countPrefix = "n:"

// deletionReport decodes the tombstone of a deleted session into a report. The session cannot be read since the
// tombstone was set.
func deletionReport(ref session.Ref, mark map[string]string) memory.ErasureReport {
	at := db.ParseTime(mark["deleted"])
	e := memory.ErasureReport{Session: ref.Session, Began: at, Ended: at, Remainders: []memory.Remainder{memory.SessionRemainder(at)}}
	for field, n := range mark {
		if kind, ok := strings.CutPrefix(field, countPrefix); ok {
			e.Add(map[string]int64{kind: db.ParseNumber(n)})
		}
	}
	return e
}

// expireBatchSize is how many index entries Expire reads in one round trip.
const expireBatchSize = 500

// Expire deletes the sessions of a tenant that have had no activity for the given age, at least a millisecond. It
// skips sessions with a turn whose lease is valid. It also completes interrupted deletions. It returns how many
// sessions it deleted, even if it also returns an error. Ages are measured by the clock of Redis.
func (e *Eraser) Expire(ctx context.Context, tenant string, age time.Duration) (int, error) {
	const op = "memory.Expire"
	now, err := e.db.Time(ctx).Result()
	if err != nil {
		return 0, e.db.Failure(op, err)
	}
	before := now.Add(-age).UnixMilli()
	at, count, key := index.Entry{Created: before}, 0, db.IndexKey(tenant, "")
	for {
		entries, err := e.index.ListEntries(ctx, op, key, at, expireBatchSize)
		if err != nil || len(entries) == 0 {
			return count, err
		}
		metas, err := e.index.LoadMetas(ctx, op, tenant, entries)
		if err != nil {
			return count, err
		}
		for i, meta := range metas {
			open := meta["open"] != "" && db.ParseNumber(meta["deadline"]) > now.UnixMilli()
			switch {
			case IsGone(meta):
				err = e.index.Remove(ctx, op, key, entries[i])
			case IsUnfinished(meta), !open && db.ParseNumber(meta["active"]) <= before:
				var deleted bool
				if deleted, _, err = e.delete(ctx, session.Ref{Tenant: tenant, Session: entries[i].Session}, age); deleted {
					count++
				}
			}
			if err != nil {
				return count, err
			}
		}
		at = entries[len(entries)-1]
	}
}
