package redisstore

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/troupe-dev/troupe/pkg/conversation"
	"github.com/troupe-dev/troupe/pkg/failure"
	"github.com/troupe-dev/troupe/pkg/memory"
	"github.com/troupe-dev/troupe/services/memory/internal/redisstore/db"
	"github.com/troupe-dev/troupe/test/redistest"
)

// beforeRoundTripHook is a Redis hook that is called before each round trip of a store. If it returns an error,
// the round trip fails with that error.
type beforeRoundTripHook func(cmds ...redis.Cmder) error

func (b beforeRoundTripHook) DialHook(next redis.DialHook) redis.DialHook { return next }

func (b beforeRoundTripHook) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		if err := b(cmd); err != nil {
			cmd.SetErr(err)
			return err
		}
		return next(ctx, cmd)
	}
}

func (b beforeRoundTripHook) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		if err := b(cmds...); err != nil {
			return err
		}
		return next(ctx, cmds)
	}
}

// runsScript reports whether the commands of a round trip run the script.
func runsScript(script *redis.Script, cmds []redis.Cmder) bool {
	for _, cmd := range cmds {
		if args := cmd.Args(); len(args) > 1 && args[1] == script.Hash() {
			return true
		}
	}
	return false
}

var errCut = errors.New("the connection was cut")

// A deletion may be interrupted at any round trip. The remaining data cannot be read. The next expiry or the next
// list of sessions removes them.
func TestStore_CompletesAnInterruptedDeletion(t *testing.T) {
	t.Parallel()
	addr := redistest.Start(t)
	s := openStore(t, "redis://"+addr)
	require.NoError(t, registeredScript("delete").Load(t.Context(), s.db).Err()) // otherwise the script takes two round trips
	resume := map[string]func(tenant string) error{
		"by Expire": func(tenant string) error {
			_, err := s.Expire(t.Context(), tenant, time.Millisecond)
			return err
		},
		"by ListSessions": func(tenant string) error {
			_, _, err := s.ListSessions(t.Context(), memory.SessionFilter{Tenant: tenant, Limit: 10})
			return err
		},
	}
	for name, resume := range resume {
		t.Run(name, func(t *testing.T) {
			for trips, cut := 1, true; cut; trips++ {
				b, h := createFullSession(t, s, fmt.Sprintf("%s %d", name, trips))
				cut = false
				left := trips
				broken := openStore(t, "redis://"+addr)
				require.NoError(t, broken.Ping(t.Context())) // connects now, because a handshake is also a round trip
				_, err := broken.db.Pipelined(t.Context(), func(p redis.Pipeliner) error { return p.Ping(t.Context()).Err() })
				require.NoError(t, err)
				broken.db.AddHook(beforeRoundTripHook(func(...redis.Cmder) error {
					if left--; left < 0 {
						cut = true
						return errCut
					}
					return nil
				}))
				_, err = broken.DeleteSession(t.Context(), b.Ref)
				require.Equal(t, cut, err != nil)

				_, err = s.ListArtifacts(t.Context(), b.Ref)
				require.Equal(t, failure.SessionDeleted, failure.ModeOf(err), "cut after %d trips: %v", trips, err)
				require.Equal(t, failure.SessionDeleted, failure.ModeOf(s.RenewTurn(t.Context(), h, memory.MinLeaseTTL)))
				eventually(t, func(context.Context) bool { // the session must be a millisecond old
					require.NoError(t, resume(b.Ref.Tenant))
					mark, err := s.db.HGetAll(t.Context(), db.Key(b.Ref, "meta")).Result()
					require.NoError(t, err)
					return mark["user"] == "" && mark["deleted"] != "" && s.db.ZScore(t.Context(), db.IndexKey("default", ""), b.Ref.Session).Val() == 0
				})
				require.Equal(t, []string{db.Key(b.Ref, "meta")}, sessionKeys(t, s, b.Ref), "cut after %d trips", trips)
				require.Positive(t, s.db.PTTL(t.Context(), db.Key(b.Ref, "meta")).Val())
				require.Zero(t, s.db.ZScore(t.Context(), db.IndexKey("default", "alice"), b.Ref.Session).Val())
			}
		})
	}
}

// A compaction does not restore messages that a concurrent ClearSession has removed.
func TestStore_CompactionDuringAClearRestoresNothing(t *testing.T) {
	t.Parallel()
	s := openStore(t, "redis://"+redistest.Start(t))
	b := newBegin("s1", "t1")
	begun, err := s.BeginTurn(t.Context(), b)
	require.NoError(t, err)
	c := newCommit(b, begun.Turn)
	for range 5 {
		c.Messages = append(c.Messages, conversation.Assistant("echo", "a secret"))
	}
	_, err = s.CommitStep(t.Context(), c)
	require.NoError(t, err)
	cleared := false
	s.db.AddHook(beforeRoundTripHook(func(cmds ...redis.Cmder) error {
		if cleared || !runsScript(registeredScript("compact"), cmds) {
			return nil
		}
		cleared = true
		return s.ClearSession(t.Context(), b.Ref)
	}))
	_, err = s.CompactSession(t.Context(), memory.Compact{Ref: b.Ref, Keep: 1})
	require.NoError(t, err)
	require.True(t, cleared)
	found, err := s.GetSession(t.Context(), b.Ref)
	require.NoError(t, err)
	require.Zero(t, found.Size.Messages)
	require.Zero(t, found.Size.Bytes)
	require.Zero(t, found.Size.Summarized)
	messages, err := s.LoadHistory(t.Context(), b.Ref, 0, 10)
	require.NoError(t, err)
	require.Empty(t, messages)
}
