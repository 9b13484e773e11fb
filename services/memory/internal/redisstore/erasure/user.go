package erasure

import (
	"context"
	_ "embed"
	"slices"
	"strconv"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/troupe-dev/troupe/pkg/failure"
	"github.com/troupe-dev/troupe/pkg/memory"
	"github.com/troupe-dev/troupe/pkg/session"
	"github.com/troupe-dev/troupe/services/memory/internal/redisstore/contents"
	"github.com/troupe-dev/troupe/services/memory/internal/redisstore/db"
	"github.com/troupe-dev/troupe/services/memory/internal/redisstore/index"
	"github.com/troupe-dev/troupe/services/memory/internal/redisstore/journal"
)

//go:embed scripts/begin_user.lua
var beginUserSource string

//go:embed scripts/erase_user.lua
var eraseUserSource string

var (
	beginUserScript = db.Register("begin_user", beginUserSource)
	eraseUserScript = db.Register("erase_user", eraseUserSource)
)

// erasingRetention is how long an unfinished erasure prevents new sessions of its user.
const erasingRetention = 24 * time.Hour

// EraseUser implements memory.Sessions.
//
// It sets the user's mark first, and a new session enters the user's index before it checks the mark. So either
// the erasure finds the session in the index, or the session finds the mark. Each session that the erasure has
// listed is recorded as erased, and the scripts reject its late changes of the user's data. So once the index is
// empty, no caller writes to the remaining data.
func (e *Eraser) EraseUser(ctx context.Context, tenant, user string) (memory.UserErasure, error) {
	const op = "memory.EraseUser"
	at := db.UserLocation(tenant, user)
	for range db.MaxAttempts {
		r, err := e.db.RunScript(ctx, op, session.Ref{}, beginUserScript, []string{at("sessions"), at("erasing"), at("erased")},
			memory.MaxPage, memory.Retention.Milliseconds(), erasingRetention.Milliseconds())
		if err != nil {
			return memory.UserErasure{}, err
		}
		if listed := r.Array(1); len(listed) > 0 {
			left, err := e.remainingSessions(ctx, op, tenant, user, listed)
			if err != nil || len(left) > 0 {
				return memory.UserErasure{Sessions: left}, err
			}
			continue // the index now has other sessions or is empty
		}
		began := db.ParseTime(r.Text(2))
		count, err := e.removeContents(ctx, op, at)
		if err != nil {
			return memory.UserErasure{}, err
		}
		r, err = e.db.RunScript(ctx, op, session.Ref{}, eraseUserScript,
			[]string{at("sessions"), at("erasing"), at("state"), at("arts"), at("reqs"), at("decided"), at("staged")}, count)
		if err != nil {
			return memory.UserErasure{}, err
		}
		if r.Status() == "ok" {
			return decodeErasedUser(user, began, r), nil
		}
	}
	return memory.UserErasure{}, failure.Newf(failure.SessionBusy, op,
		"the user had other sessions each of %d times; repeat the call", db.MaxAttempts)
}

// decodeErasedUser decodes the script reply {"ok", state keys, artifacts, bytes, time}.
func decodeErasedUser(user string, began time.Time, r db.Reply) memory.UserErasure {
	ended := db.ParseTime(r.Text(4))
	e := memory.ErasureReport{User: user, Began: began, Ended: ended, Remainders: []memory.Remainder{memory.UserRemainder(ended)}}
	e.Add(map[string]int64{
		memory.KindUserState: db.ParseNumber(r.Text(1)), memory.KindUserArtifacts: db.ParseNumber(r.Text(2)), memory.KindUserBytes: db.ParseNumber(r.Text(3)),
	})
	return memory.UserErasure{Report: e}
}

// remainingSessions returns the listed sessions that are not deleted yet. The list alternates session ids and
// creation times. remainingSessions completes interrupted deletions and drops entries without a session.
func (e *Eraser) remainingSessions(ctx context.Context, op, tenant, user string, listed db.Reply) (ids []string, _ error) {
	entries := make([]index.Entry, 0, len(listed)/2)
	for i := 0; i+1 < len(listed); i += 2 {
		entries = append(entries, index.Entry{Created: db.ParseNumber(listed.Text(i + 1)), Session: listed.Text(i)})
	}
	metas, err := e.index.LoadMetas(ctx, op, tenant, entries)
	if err != nil {
		return nil, err
	}
	for i, entry := range entries {
		ref := session.Ref{Tenant: tenant, Session: entry.Session}
		switch meta := metas[i]; {
		case IsGone(meta), meta["user"] != user:
			err = e.index.Remove(ctx, op, db.IndexKey(tenant, user), entry)
		case IsUnfinished(meta):
			err = e.FinishDeletion(ctx, op, ref, meta)
		default:
			ids = append(ids, entry.Session)
		}
		if err != nil {
			return nil, err
		}
	}
	return ids, nil
}

// removeContents removes the bytes of all artifacts at a location. It returns the number of versions that the
// location lists.
func (e *Eraser) removeContents(ctx context.Context, op string, at db.Location) (string, error) {
	stored, err := e.db.HGetAll(ctx, at("arts")).Result()
	if err != nil {
		return "", e.db.Failure(op, err)
	}
	count := strconv.FormatInt(db.ParseNumber(stored["arts"]), 10)
	all, err := contents.DecodeVersions(stored)
	if err != nil {
		return "", db.NewUnreadableError(op, err)
	}
	staged, err := e.stagedContents(ctx, op, at)
	if err != nil {
		return "", err
	}
	var keys []string
	for _, a := range all {
		keys = append(keys, contents.ContentKeys(at, a.Content)...)
	}
	for _, c := range staged {
		keys = append(keys, contents.ContentKeys(at, c)...)
	}
	if len(keys) == 0 {
		return count, nil
	}
	_, err = e.db.Pipelined(ctx, func(p redis.Pipeliner) error {
		for batch := range slices.Chunk(keys, journal.BatchSize) {
			p.Unlink(ctx, batch...)
		}
		return nil
	})
	if err != nil {
		return "", e.db.Failure(op, err)
	}
	return count, nil
}
