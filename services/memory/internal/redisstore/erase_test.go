package redisstore

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	redis "github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/troupe-dev/troupe/internal/transfer"
	"github.com/troupe-dev/troupe/pkg/conversation"
	"github.com/troupe-dev/troupe/pkg/execution"
	"github.com/troupe-dev/troupe/pkg/failure"
	"github.com/troupe-dev/troupe/pkg/memory"
	"github.com/troupe-dev/troupe/pkg/session"
	"github.com/troupe-dev/troupe/services/memory/internal/redisstore/db"
	"github.com/troupe-dev/troupe/test/redistest"
)

const marker = "MARKED"

// createMarkedSession creates a session that has the marker in every field that a caller can set.
func createMarkedSession(t *testing.T, s *Store, id, user string) memory.Lease {
	t.Helper()
	value := json.RawMessage(`"` + marker + `"`)
	b := newBegin(id, marker+"1")
	b.User, b.TraceID, b.Fingerprint = user, marker, marker
	b.Message = conversation.User(marker)
	b.Message.Attachments = []conversation.Attachment{{Name: marker, MediaType: "text/" + marker, Data: []byte(marker)}}
	begun, err := s.BeginTurn(t.Context(), b)
	require.NoError(t, err)
	c := newCommit(b, begun.Turn)
	c.Messages = []conversation.Message{conversation.Assistant(marker, marker)}
	c.State = map[string]json.RawMessage{marker: value, "user:" + marker: value}
	c.Result = execution.Result{Step: 1, Agent: marker, Text: marker}
	_, err = s.CommitStep(t.Context(), c)
	require.NoError(t, err)
	_, err = s.UpdateSession(t.Context(), memory.SessionUpdate{Ref: b.Ref, Metadata: map[string]string{marker: marker}})
	require.NoError(t, err)
	_, err = s.UpdateState(t.Context(), memory.StateUpdate{Ref: b.Ref, RequestID: marker, Delta: map[string]json.RawMessage{marker + "2": value}})
	require.NoError(t, err)
	_, err = s.UpdateState(t.Context(), memory.StateUpdate{Ref: b.Ref, RequestID: marker, Delta: map[string]json.RawMessage{"user:" + marker + "2": value}})
	require.NoError(t, err)

	b.TurnID, b.Message = marker+"2", conversation.User(marker)
	begun, err = s.BeginTurn(t.Context(), b)
	require.NoError(t, err)
	h := memory.Lease{Ref: b.Ref, TurnID: b.TurnID, Epoch: begun.Turn.Epoch}
	require.NoError(t, s.Record(t.Context(), h, 1, []execution.Entry{{Number: 1, Phase: execution.Done, Text: marker}}))
	for _, name := range []string{marker, "user:" + marker} {
		_, err = transfer.Upload(t.Context(), s, h, memory.Artifact{Name: name, MediaType: "text/" + marker},
			newSectionReader([]byte(strings.Repeat(marker, memory.ArtifactChunk/4))))
		require.NoError(t, err)
	}
	return h
}

// findMarkedKeys returns every key that contains the marker in its name or value.
func findMarkedKeys(t *testing.T, s *Store) (found []string) {
	t.Helper()
	var mu sync.Mutex // masters are asked concurrently
	require.NoError(t, s.db.EachMaster(t.Context(), func(ctx context.Context, c redis.Cmdable) error {
		if err := c.ConfigSet(ctx, "rdbcompression", "no").Err(); err != nil { // otherwise a dump may be compressed
			return err
		}
		for cursor := uint64(0); ; {
			keys, next, err := c.Scan(ctx, cursor, "*", 1000).Result()
			if err != nil {
				return err
			}
			for _, key := range keys {
				content, err := c.Dump(ctx, key).Result()
				if err == nil && strings.Contains(key+content, marker) {
					mu.Lock()
					found = append(found, key)
					mu.Unlock()
				}
			}
			if cursor = next; cursor == 0 {
				return nil
			}
		}
	}))
	return found
}

// findMarkedFiles returns the data files of a Redis server that contain the marker, after Redis has rewritten its
// append-only file.
func findMarkedFiles(t *testing.T, s *Store, server *redistest.Server) (found []string) {
	t.Helper()
	require.NoError(t, s.db.BgRewriteAOF(t.Context()).Err())
	eventually(t, func(ctx context.Context) bool {
		info := s.db.Info(ctx, "persistence").Val()
		return strings.Contains(info, "aof_rewrite_in_progress:0") && strings.Contains(info, "aof_rewrite_scheduled:0")
	})
	eventually(t, func(context.Context) bool { // the old file is removed later
		found = nil
		require.NoError(t, filepath.WalkDir(server.Dir(), func(path string, d os.DirEntry, err error) error {
			if err != nil || !d.Type().IsRegular() {
				return nil //nolint:nilerr // Redis may remove files at the same time
			}
			if content, err := os.ReadFile(path); err == nil && strings.Contains(string(content), marker) {
				found = append(found, path)
			}
			return nil
		}))
		return len(found) == 0
	})
	return found
}

// eraseUser erases a user. It deletes the remaining sessions and repeats the call until the erasure is complete.
func eraseUser(ctx context.Context, s *Store, user string) error {
	for {
		e, err := s.EraseUser(ctx, "default", user)
		if err != nil || len(e.Sessions) == 0 {
			return err
		}
		for _, id := range e.Sessions {
			if _, err := s.DeleteSession(ctx, session.Ref{Tenant: "default", Session: id}); err != nil {
				return err
			}
		}
	}
}

// No key contains data of an erased user. Once Redis has rewritten its append-only file, no file contains data of
// the user either.
func TestStore_ErasesAllDataOfAUser(t *testing.T) {
	t.Parallel()
	server := redistest.StartServer(t, "--rdbcompression", "no")
	s := openStore(t, "redis://"+server.Addr)
	require.NoError(t, s.db.ConfigSet(t.Context(), "aof-use-rdb-preamble", "no").Err()) // so that the file is plain text
	createMarkedSession(t, s, "s1", "alice")
	h := createMarkedSession(t, s, "s2", "alice")
	require.Greater(t, len(findMarkedKeys(t, s)), 10)
	require.NoError(t, eraseUser(t.Context(), s, "alice"))
	require.Empty(t, findMarkedKeys(t, s))
	require.Empty(t, findMarkedFiles(t, s, server))
	for name, late := range map[string]error{
		"commit": errorOf(s.CommitStep(t.Context(), memory.Commit{
			Ref: h.Ref, TurnID: h.TurnID, Epoch: h.Epoch, Outcome: session.OutcomeCompleted,
			Result: execution.Result{Step: 1},
		})),
		"state": errorOf(s.UpdateState(t.Context(), memory.StateUpdate{
			Ref: h.Ref, RequestID: "late",
			Delta: map[string]json.RawMessage{"user:" + marker: json.RawMessage("1")},
		})),
	} {
		require.Equal(t, failure.SessionDeleted, failure.ModeOf(late), name)
	}
	require.Empty(t, findMarkedKeys(t, s))
}

// A writer that pauses between two of its Redis calls during the erasure changes nothing afterwards.
func TestStore_RejectsLateWritersOfAnErasedUser(t *testing.T) {
	t.Parallel()
	server := redistest.StartServer(t)
	s := openStore(t, "redis://"+server.Addr)
	value := json.RawMessage(`"` + marker + `"`)
	for name, write := range map[string]func(*Store, memory.Lease) error{
		"state": func(s *Store, h memory.Lease) error {
			return errorOf(s.UpdateState(t.Context(), memory.StateUpdate{Ref: h.Ref, RequestID: "late", Delta: map[string]json.RawMessage{"user:late": value}}))
		},
		"state of a turn": func(s *Store, h memory.Lease) error {
			return errorOf(s.UpdateState(t.Context(), memory.StateUpdate{
				Ref: h.Ref, TurnID: h.TurnID, Epoch: h.Epoch, RequestID: "late",
				Delta: map[string]json.RawMessage{"user:late": value},
			}))
		},
		"artifact": func(s *Store, h memory.Lease) error {
			return errorOf(transfer.Upload(t.Context(), s, h, memory.Artifact{Name: "user:late"}, newSectionReader([]byte(marker+"late"))))
		},
		"commit": func(s *Store, h memory.Lease) error {
			return errorOf(s.CommitStep(t.Context(), memory.Commit{
				Ref: h.Ref, TurnID: h.TurnID, Epoch: h.Epoch, Base: 3, Outcome: session.OutcomeCompleted,
				Result: execution.Result{Step: 1}, State: map[string]json.RawMessage{"user:late": value},
			}))
		},
	} {
		t.Run(name, func(t *testing.T) {
			for stop, stopped := 1, true; stopped; stop++ {
				user := fmt.Sprintf("%s%d", strings.ReplaceAll(name, " ", ""), stop)
				h := createMarkedSession(t, s, user, user)
				slow, trips := openStore(t, "redis://"+server.Addr), 0
				require.NoError(t, slow.Ping(t.Context()))
				stopped = false
				slow.db.AddHook(beforeRoundTripHook(func(...redis.Cmder) error {
					if trips++; trips == stop {
						stopped = true
						require.NoError(t, eraseUser(t.Context(), s, user))
					}
					return nil
				}))
				err := write(slow, h) // nil if the write was done before the erasure
				if stopped && err != nil {
					require.True(t, failure.Is(err, failure.SessionDeleted, failure.NotFound), "stopped before trip %d: %v", stop, err)
				}
				require.NoError(t, eraseUser(t.Context(), s, user+"none"))
				if stopped {
					require.Empty(t, findMarkedKeys(t, s), "stopped before trip %d", stop)
				} else {
					require.NoError(t, eraseUser(t.Context(), s, user))
				}
			}
		})
	}
}

// An erasure may be interrupted before any of its round trips to Redis. The next call completes it.
func TestStore_CompletesAnInterruptedErasureOfAUser(t *testing.T) {
	t.Parallel()
	addr := redistest.Start(t)
	s := openStore(t, "redis://"+addr)
	trips := 0
	for cut := true; cut; trips++ {
		user := fmt.Sprintf("alice%d", trips)
		createMarkedSession(t, s, user, user)
		cut = false
		left := trips
		broken := openStore(t, "redis://"+addr)
		require.NoError(t, broken.Ping(t.Context()))
		broken.db.AddHook(beforeRoundTripHook(func(...redis.Cmder) error {
			if left--; left < 0 {
				cut = true
				return errCut
			}
			return nil
		}))
		require.Equal(t, cut, eraseUser(t.Context(), broken, user) != nil)
		require.NoError(t, eraseUser(t.Context(), s, user))
		require.Empty(t, findMarkedKeys(t, s), "cut after %d trips", trips)
		require.Zero(t, s.db.Exists(t.Context(), db.UserKey("default", user, "erasing")).Val())
	}
	require.Greater(t, trips, 10)
}

func TestStore_ErasesAUserInACluster(t *testing.T) {
	t.Parallel()
	s := openStore(t, redistest.StartCluster(t))
	for n := range 5 {
		createMarkedSession(t, s, fmt.Sprintf("s%d", n), "alice")
	}
	require.NotEmpty(t, findMarkedKeys(t, s))
	require.NoError(t, eraseUser(t.Context(), s, "alice"))
	require.Empty(t, findMarkedKeys(t, s))
}

// A session of the largest size is erased within a minute (guarantee S24).
func TestStore_ErasesALargeSessionWithinAMinute(t *testing.T) {
	t.Parallel()
	s, err := New(Config{URL: "redis://" + redistest.Start(t)})
	require.NoError(t, err)
	defer s.Close()
	const messages, files = 10_000, 20
	b := newBegin("s1", "t1")
	begun, err := s.BeginTurn(t.Context(), b)
	require.NoError(t, err)
	h := memory.Lease{Ref: b.Ref, TurnID: "t1", Epoch: begun.Turn.Epoch}
	for n := range files {
		_, err := transfer.Upload(t.Context(), s, h, memory.Artifact{Name: fmt.Sprintf("f%d", n)},
			newSectionReader([]byte(strings.Repeat(fmt.Sprint(n%10), 4<<20)+fmt.Sprint(n))))
		require.NoError(t, err)
	}
	last := int64(1)
	for n := 1; last < messages; n++ {
		c := memory.Commit{Ref: b.Ref, TurnID: "t1", Epoch: h.Epoch, Base: last, Result: execution.Result{Step: n}}
		for range min(500, messages-int(last)) {
			c.Messages = append(c.Messages, conversation.Assistant("echo", strings.Repeat("x", 1000)))
		}
		last, err = s.CommitStep(t.Context(), c)
		require.NoError(t, err)
	}
	began := time.Now()
	e, err := s.DeleteSession(t.Context(), b.Ref)
	require.NoError(t, err)
	took := time.Since(began)
	require.Equal(t, int64(messages), e.Removed[memory.KindMessages])
	require.Less(t, took, time.Minute)
	t.Logf("%d messages and %d MiB of artifacts in %s", messages, e.Removed[memory.KindArtifactBytes]>>20, took)
}
