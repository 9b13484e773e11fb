package redisstore

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
)

//go:embed scripts/leave_user.lua
var leaveUserSource string

//go:embed scripts/erase_user.lua
var eraseUserSource string

var (
	leaveUserScript = script(leaveUserSource)
	eraseUserScript = script(eraseUserSource)
)

// leavingKept is for how long a user whom nobody goes on to erase may begin no session.
const leavingKept = 24 * time.Hour

// EraseUser implements memory.Sessions.
//
// The user's mark is set first, and a new session enters the user's list before it looks for
// the mark: so it is on the list, or knows that the erasure is over. A session that was ever
// returned is struck: what comes late in its name changes nothing of the user's, by the scripts
// that would. So once the list is empty nobody writes to what is left.
func (s *Store) EraseUser(ctx context.Context, tenant, user string) (memory.ErasedUser, error) {
	const op = "memory.EraseUser"
	at := ofUser(tenant, user)
	for range maxRounds {
		r, err := s.run(ctx, op, session.Ref{}, leaveUserScript, []string{at("sessions"), at("leaving"), at("erased")},
			memory.MaxPage, memory.Retention.Milliseconds(), leavingKept.Milliseconds())
		if err != nil {
			return memory.ErasedUser{}, err
		}
		if listed := reply(r.list(1)); len(listed) > 0 {
			left, err := s.alive(ctx, op, tenant, user, listed)
			if err != nil || len(left) > 0 {
				return memory.ErasedUser{Sessions: left}, err
			}
			continue // the list has others, or none
		}
		began := moment(r.text(2))
		count, err := s.forgetContents(ctx, op, at)
		if err != nil {
			return memory.ErasedUser{}, err
		}
		r, err = s.run(ctx, op, session.Ref{}, eraseUserScript,
			[]string{at("sessions"), at("leaving"), at("state"), at("arts"), at("reqs"), at("settled"), at("staged")}, count)
		if err != nil {
			return memory.ErasedUser{}, err
		}
		if r.status() == "ok" {
			ended := moment(r.text(4))
			e := memory.Erasure{User: user, Began: began, Ended: ended, Remains: []memory.Remainder{memory.MarkOfUser(ended)}}
			e.Add(map[string]int64{memory.KindUserState: number(r.text(1)), memory.KindUserArtifacts: number(r.text(2)), memory.KindUserBytes: number(r.text(3))})
			return memory.ErasedUser{Erasure: e}, nil
		}
	}
	return memory.ErasedUser{}, failure.Newf(failure.SessionBusy, op,
		"the user had other sessions each of %d times; repeat the call", maxRounds)
}

// alive are those of a list, of ids and when they were made, that are still to be deleted. It
// ends deletions that were cut off, and drops entries that have no session.
func (s *Store) alive(ctx context.Context, op, tenant, user string, listed reply) (ids []string, _ error) {
	entries := make([]position, 0, len(listed)/2)
	for i := 0; i+1 < len(listed); i += 2 {
		entries = append(entries, position{number(listed.text(i + 1)), listed.text(i)})
	}
	metas, err := s.metas(ctx, op, tenant, entries)
	if err != nil {
		return nil, err
	}
	for i, e := range entries {
		ref := session.Ref{Tenant: tenant, Session: e.session}
		switch meta := metas[i]; {
		case gone(meta), meta["user"] != user:
			err = s.unlist(ctx, op, indexKey(tenant, user), e)
		case unfinished(meta):
			err = s.finish(ctx, op, ref, user)
		default:
			ids = append(ids, e.session)
		}
		if err != nil {
			return nil, err
		}
	}
	return ids, nil
}

// forgetContents removes the bytes of all artifacts at a place, and returns how many versions
// there were, as the place says it.
func (s *Store) forgetContents(ctx context.Context, op string, at place) (string, error) {
	stored, err := s.redis.HGetAll(ctx, at("arts")).Result()
	if err != nil {
		return "", s.redis.Fault(op, err)
	}
	count := strconv.FormatInt(number(stored["arts"]), 10)
	all, err := versions(stored)
	if err != nil {
		return "", unreadable(op, err)
	}
	staged, err := s.redis.ZRevRangeByScore(ctx, at("staged"), &redis.ZRangeBy{Min: "-inf", Max: "+inf"}).Result()
	if err != nil {
		return "", s.redis.Fault(op, err)
	}
	var ks []string
	for _, a := range all {
		ks = append(ks, at.content(a.Content)...)
	}
	for _, name := range staged {
		ks = append(ks, at.content(contentNamed(name))...)
	}
	if len(ks) == 0 {
		return count, nil
	}
	_, err = s.redis.Pipelined(ctx, func(p redis.Pipeliner) error {
		for some := range slices.Chunk(ks, swept) {
			p.Unlink(ctx, some...)
		}
		return nil
	})
	if err != nil {
		return "", s.redis.Fault(op, err)
	}
	return count, nil
}
