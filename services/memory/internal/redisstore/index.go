package redisstore

import (
	"context"
	_ "embed"
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/troupe-dev/troupe/pkg/failure"
	"github.com/troupe-dev/troupe/pkg/session"
)

//go:embed scripts/unlist.lua
var unlistSource string

var unlistScript = script(unlistSource)

// indexKey is the index of a user's sessions; of all of the tenant without one.
func indexKey(tenant, user string) string {
	if user == "" {
		return "m:idx:{" + tenant + "}"
	}
	return userKey(tenant, user, "sessions")
}

// userKey names what sessions of a user share, appKey what those of a tenant do. No session
// has such a tag: its own has one slash.
func userKey(tenant, user, name string) string { return "m:{" + tenant + "/u/" + user + "}:" + name }

func appKey(tenant, name string) string { return "m:{" + tenant + "}:" + name }

// index puts a session into the indexes, and its tenant on the list. Again it changes nothing. It fails when the user is
// being erased: whoever does that finds the session there.
func (s *Store) index(ctx context.Context, op string, ref session.Ref, user string, created time.Time) error {
	entry := redis.Z{Score: float64(created.UnixMilli()), Member: ref.Session}
	var leaving *redis.IntCmd
	_, err := s.redis.Pipelined(ctx, func(p redis.Pipeliner) error {
		p.ZAdd(ctx, tenantsKey, redis.Z{Member: ref.Tenant})
		p.ZAdd(ctx, indexKey(ref.Tenant, ""), entry)
		if user != "" { // in this order: the erasure of a user ends when none of his is on the list
			p.ZAdd(ctx, indexKey(ref.Tenant, user), entry)
			leaving = p.Exists(ctx, userKey(ref.Tenant, user, "leaving"))
		}
		return nil
	})
	if err != nil {
		return s.redis.Fault(op, err)
	}
	if leaving != nil && leaving.Val() > 0 {
		return failure.Newf(failure.SessionDeleted, op, "session %s was deleted, for its user is being erased; begin a new session later", ref.Session).
			With("session_id", ref.Session)
	}
	return nil
}

// unlist drops an entry whose session is gone, as long as it is the one that was read.
func (s *Store) unlist(ctx context.Context, op, index string, e position) error {
	_, err := s.run(ctx, op, session.Ref{}, unlistScript, []string{index}, e.session, strconv.FormatInt(e.created, 10))
	return err
}

// position is a place in an index, which is in the order of creation, and of the id among
// those that were made in the same millisecond.
type position struct {
	created int64 // milliseconds
	session string
}

// latest is in front of all entries.
var latest = position{created: math.MaxInt64 >> 10}

func (p position) String() string { return strconv.FormatInt(p.created, 10) + "/" + p.session }

// behind reports whether p comes after q when those made last are first.
func (p position) behind(q position) bool {
	return p.created < q.created || p.created == q.created && p.session < q.session
}

func positionOf(op, token string) (position, error) {
	if token == "" {
		return latest, nil
	}
	created, id, ok := strings.Cut(token, "/")
	ms, err := strconv.ParseInt(created, 10, 64)
	if !ok || err != nil {
		return position{}, failure.New(failure.UserInvalidInput, op, "page_token: it is not one that a list gave; begin without one").With("fields", "page_token")
	}
	return position{ms, id}, nil
}

// entries reads at most limit entries of an index behind a position, those made last first.
func (s *Store) entries(ctx context.Context, op, index string, after position, limit int) ([]position, error) {
	for count := limit; ; count *= 2 {
		stored, err := s.redis.ZRevRangeByScoreWithScores(ctx, index, &redis.ZRangeBy{
			Min: "-inf", Max: strconv.FormatInt(after.created, 10), Count: int64(count),
		}).Result()
		if err != nil {
			return nil, s.redis.Fault(op, err)
		}
		var found []position
		for _, z := range stored {
			id, _ := z.Member.(string)
			if p := (position{int64(z.Score), id}); p.behind(after) && len(found) < limit {
				found = append(found, p)
			}
		}
		// Of many that were made in one millisecond, those in front of the position may have
		// filled the answer.
		if len(found) == limit || len(stored) < count {
			return found, nil
		}
	}
}

// metas reads the meta of each session.
func (s *Store) metas(ctx context.Context, op, tenant string, entries []position) ([]map[string]string, error) {
	replies := make([]*redis.MapStringStringCmd, len(entries))
	_, err := s.redis.Pipelined(ctx, func(p redis.Pipeliner) error {
		for i, e := range entries {
			replies[i] = p.HGetAll(ctx, key(session.Ref{Tenant: tenant, Session: e.session}, "meta"))
		}
		return nil
	})
	if err != nil {
		return nil, s.redis.Fault(op, err)
	}
	metas := make([]map[string]string, len(entries))
	for i, r := range replies {
		metas[i] = r.Val()
	}
	return metas, nil
}
