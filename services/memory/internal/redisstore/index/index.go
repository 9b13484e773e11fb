// Package index maintains the indexes of sessions: a sorted set of session ids by creation time for each tenant
// and each user, and a list of the tenants.
package index

import (
	"context"
	_ "embed"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/troupe-dev/troupe/internal/identity"
	"github.com/troupe-dev/troupe/pkg/failure"
	"github.com/troupe-dev/troupe/pkg/session"
	"github.com/troupe-dev/troupe/services/memory/internal/redisstore/db"
)

//go:embed scripts/unlist.lua
var unlistSource string

var unlistScript = db.Register("unlist", unlistSource)

// Index maintains the lists of sessions and tenants. It is safe for concurrent use.
type Index struct {
	db *db.DB
}

// New returns the session index stored in d.
func New(d *db.DB) *Index { return &Index{d} }

// Add adds a session to the indexes, and its tenant to the list of tenants. Repeating it changes nothing. It
// returns an error if the user is being erased. In that case the erasure finds the session in the index.
func (x *Index) Add(ctx context.Context, op string, ref session.Ref, user string, created time.Time) error {
	entry := redis.Z{Score: float64(created.UnixMilli()), Member: ref.Session}
	var leaving *redis.IntCmd
	_, err := x.db.Pipelined(ctx, func(p redis.Pipeliner) error {
		p.ZAdd(ctx, db.TenantsKey, redis.Z{Member: ref.Tenant})
		p.ZAdd(ctx, db.IndexKey(ref.Tenant, ""), entry)
		if user != "" { // in this order: the erasure of a user ends once the user's index is empty
			p.ZAdd(ctx, db.IndexKey(ref.Tenant, user), entry)
			leaving = p.Exists(ctx, db.UserKey(ref.Tenant, user, "erasing"))
		}
		return nil
	})
	if err != nil {
		return x.db.Failure(op, err)
	}
	if leaving != nil && leaving.Val() > 0 {
		return failure.Newf(failure.SessionDeleted, op, "session %s was deleted, because its user is being erased; begin a new session later", ref.Session).
			With("session_id", ref.Session)
	}
	return nil
}

// Remove removes an entry whose session no longer exists, unless the session was created again since the entry was
// read.
func (x *Index) Remove(ctx context.Context, op, key string, e Entry) error {
	_, err := x.db.RunScript(ctx, op, session.Ref{}, unlistScript, []string{key}, e.Session, strconv.FormatInt(e.Created, 10))
	return err
}

// Entry is one entry of an index. Entries are ordered by creation time. Entries of the same millisecond are
// ordered by session id.
type Entry struct {
	Created int64 // time of creation in milliseconds
	Session string
}

// Start is the position before the first entry of a list that begins with the latest session.
var Start = Entry{Created: math.MaxInt64 >> 10}

// PageToken returns the page token for the entries after this one.
func (e Entry) PageToken() string { return strconv.FormatInt(e.Created, 10) + "/" + e.Session }

// isListedAfter reports whether e comes after f in a list that begins with the latest session.
func (e Entry) isListedAfter(f Entry) bool {
	return e.Created < f.Created || e.Created == f.Created && e.Session < f.Session
}

// ParsePageToken returns the entry after which a page begins (Start for an empty token).
func ParsePageToken(op, token string) (Entry, error) {
	if token == "" {
		return Start, nil
	}
	created, id, ok := strings.Cut(token, "/")
	ms, err := strconv.ParseInt(created, 10, 64)
	if !ok || err != nil {
		return Entry{}, failure.New(failure.UserInvalidInput, op, "page_token: no list returned it; begin without one").With("fields", "page_token")
	}
	return Entry{ms, id}, nil
}

// ListEntries returns at most limit entries of an index that come after the given one, latest first.
func (x *Index) ListEntries(ctx context.Context, op, key string, after Entry, limit int) ([]Entry, error) {
	for count := limit; ; count *= 2 {
		stored, err := x.db.ZRevRangeByScoreWithScores(ctx, key, &redis.ZRangeBy{
			Min: "-inf", Max: strconv.FormatInt(after.Created, 10), Count: int64(count),
		}).Result()
		if err != nil {
			return nil, x.db.Failure(op, err)
		}
		var found []Entry
		for _, z := range stored {
			id, _ := z.Member.(string)
			if e := (Entry{int64(z.Score), id}); e.isListedAfter(after) && len(found) < limit {
				found = append(found, e)
			}
		}
		// If many sessions were created in one millisecond, entries before the given one may fill the reply. In
		// that case more entries are read.
		if len(found) == limit || len(stored) < count {
			return found, nil
		}
	}
}

// LoadMetas returns the meta hash of each entry's session.
func (x *Index) LoadMetas(ctx context.Context, op, tenant string, entries []Entry) ([]map[string]string, error) {
	replies := make([]*redis.MapStringStringCmd, len(entries))
	_, err := x.db.Pipelined(ctx, func(p redis.Pipeliner) error {
		for i, e := range entries {
			replies[i] = p.HGetAll(ctx, db.Key(session.Ref{Tenant: tenant, Session: e.Session}, "meta"))
		}
		return nil
	})
	if err != nil {
		return nil, x.db.Failure(op, err)
	}
	metas := make([]map[string]string, len(entries))
	for i, r := range replies {
		metas[i] = r.Val()
	}
	return metas, nil
}

// Tenants returns all tenants that may have sessions, sorted. The default tenant is always included, because its
// sessions may be older than the list.
func (x *Index) Tenants(ctx context.Context) ([]string, error) {
	all, err := x.db.ZRevRangeByScore(ctx, db.TenantsKey, &redis.ZRangeBy{Min: "-inf", Max: "+inf"}).Result()
	if err != nil {
		return nil, x.db.Failure("memory.Tenants", err)
	}
	all = append(all, identity.DefaultTenant)
	slices.Sort(all)
	return slices.Compact(all), nil
}
