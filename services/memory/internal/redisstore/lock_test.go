package redisstore

import (
	"context"
	"encoding/json"
	"fmt"
	"strconv"
	"testing"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/troupe-dev/troupe/pkg/failure"
	"github.com/troupe-dev/troupe/pkg/memory"
	"github.com/troupe-dev/troupe/services/memory/internal/redisstore/db"
	"github.com/troupe-dev/troupe/test/redistest"
)

var countedKeys = []string{"user:n", "app:n"}

// newCountingCommit begins a turn of alice and returns a commit of its only step.
func newCountingCommit(t *testing.T, s *Store, sessionID string) memory.Commit {
	t.Helper()
	b := newBegin(sessionID, "t1")
	b.User = "alice"
	begun, err := s.BeginTurn(t.Context(), b)
	require.NoError(t, err)
	return newCommit(b, begun.Turn)
}

// count makes the commit change each counted key from the value that the store has now to the next number.
func count(ctx context.Context, s *Store, c *memory.Commit) error {
	snapshot, err := s.GetState(ctx, c.Ref)
	c.State, c.Expected = map[string]json.RawMessage{}, map[string]int64{}
	for _, key := range countedKeys {
		n, _ := strconv.Atoi(string(snapshot.Values[key])) // 0 if the key does not exist
		c.State[key], c.Expected[key] = fmt.Append(nil, n+1), snapshot.Keys[key]
	}
	return err
}

// commitUntilAccepted repeats a commit until it is accepted, as a worker does: the same commit while it is unknown
// whether it was accepted, and one with new values after a change of a key.
func commitUntilAccepted(ctx context.Context, s *Store, c memory.Commit) error {
	for {
		_, err := s.CommitStep(ctx, c)
		if failure.Is(err, failure.RevisionMismatch) {
			err = count(ctx, s, &c)
		} else if err == nil {
			return nil
		}
		if err != nil && !failure.Is(err, failure.SystemNetwork) {
			return err
		}
	}
}

// openConnectedStore returns a store that has connected and loaded all scripts, so that each call of a script is one
// round trip.
func openConnectedStore(t *testing.T, url string) *Store {
	t.Helper()
	s := openStore(t, url)
	for _, script := range db.Scripts() {
		require.NoError(t, script.Load(t.Context(), s.db).Err())
	}
	_, err := s.db.Pipelined(t.Context(), func(p redis.Pipeliner) error { return p.Ping(t.Context()).Err() })
	require.NoError(t, err)
	return s
}

// A process may be lost, or stand still, before any round trip of a commit that has locked keys. Others still count,
// and no count is lost: neither theirs nor the count of the commit, which is repeated.
func TestStore_LocksOfALostCommitLoseNoUpdate(t *testing.T) {
	t.Parallel()
	url := "redis://" + redistest.Start(t)
	s := openConnectedStore(t, url)
	for name, standsStill := range map[string]bool{"lost": false, "stands still": true} {
		t.Run(name, func(t *testing.T) {
			reached := true
			for trips := 0; reached; trips++ {
				require.NoError(t, s.db.Del(t.Context(), db.UserKey("default", "alice", "state"), db.AppKey("default", "state")).Err())
				slow, fast := newCountingCommit(t, s, fmt.Sprintf("%v-%d-slow", standsStill, trips)), newCountingCommit(t, s, fmt.Sprintf("%v-%d-fast", standsStill, trips))
				require.NoError(t, count(t.Context(), s, &slow))
				require.NoError(t, count(t.Context(), s, &fast))
				broken := openConnectedStore(t, url)
				left := trips
				reached = false
				broken.db.AddHook(beforeRoundTripHook(func(...redis.Cmder) error {
					if left--; left != -1 && (standsStill || left >= 0) {
						return nil
					}
					if !reached {
						reached = true
						require.NoError(t, commitUntilAccepted(t.Context(), s, fast))
					}
					if standsStill {
						return nil
					}
					return errCut
				}))
				_, err := broken.CommitStep(t.Context(), slow)
				if !standsStill {
					require.Equal(t, reached, err != nil)
				}
				if !reached {
					require.NoError(t, commitUntilAccepted(t.Context(), s, fast))
				}
				require.NoError(t, commitUntilAccepted(t.Context(), s, slow))
				got := readState(t, s, memory.Begin{Ref: slow.Ref})
				require.Equal(t, []string{"2", "2"}, []string{string(got.Values["user:n"]), string(got.Values["app:n"])}, "interrupted after %d trips", trips)
				for _, key := range []string{db.UserKey("default", "alice", "state"), db.AppKey("default", "state")} {
					fields, err := s.db.HKeys(t.Context(), key).Result()
					require.NoError(t, err)
					require.NotContains(t, fields, "l:user:n")
					require.NotContains(t, fields, "l:app:n")
				}
			}
		})
	}
}
