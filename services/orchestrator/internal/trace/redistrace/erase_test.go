package redistrace_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/proto"

	"github.com/troupe-dev/troupe/pkg/failure"
	troupev1 "github.com/troupe-dev/troupe/pkg/gen/troupe/v1"
	"github.com/troupe-dev/troupe/pkg/memory"
	"github.com/troupe-dev/troupe/services/orchestrator/internal/trace"
	"github.com/troupe-dev/troupe/services/orchestrator/internal/trace/redistrace"
	"github.com/troupe-dev/troupe/test/redistest"
)

const marker = "MARKED"

var erasedSubject = trace.Subject{Tenant: "default", Session: "s"}

// storeTraceWithWords stores a trace of the session with the erased words in every list and field, and returns its
// owner epoch.
func storeTraceWithWords(t *testing.T, s *redistrace.Store, n int, id string) int64 {
	t.Helper()
	r := newRecord(n)
	r.SessionId, r.Text, r.RootTraceId = id, marker, traceRef(n-1).Trace
	info := trace.TurnInfo{User: marker, Fingerprint: marker, Labels: `{"profile":"` + marker + `"}`}
	decision := decisionEvent(n, 1, agentChoice)
	decision.GetRoutingDecision().Reason = marker
	epoch, _, err := s.Claim(t.Context(), trace.Claim{Tenant: "default", Record: r, Turn: info, Events: []*troupev1.Event{decision}})
	require.NoError(t, err)
	require.NoError(t, s.RequestStop(t.Context(), trace.StopRequest{Ref: traceRef(n), Reason: marker}))
	result := proto.CloneOf(quarantinedResult)
	result.Text = marker
	require.NoError(t, s.Append(t.Context(), traceRef(n), epoch, 0, []*troupev1.Event{decisionEvent(n, 2, instanceChoice)}, result))
	return epoch
}

// dumpRedis returns the content of Redis by key.
func dumpRedis(t *testing.T, client redis.UniversalClient) map[string]string {
	t.Helper()
	all := map[string]string{}
	keys, err := client.Keys(t.Context(), "*").Result()
	require.NoError(t, err)
	for _, key := range keys {
		switch kind := client.Type(t.Context(), key).Val(); kind {
		case "hash":
			all[key] = fmt.Sprint(client.HGetAll(t.Context(), key).Val())
		case "zset":
			all[key] = fmt.Sprint(client.ZRange(t.Context(), key, 0, -1).Val())
		case "stream":
			all[key] = fmt.Sprint(client.XRange(t.Context(), key, "-", "+").Val())
		default:
			t.Fatalf("%s is a %s", key, kind)
		}
	}
	return all
}

// keysWith returns the keys whose name or value contains any of the words.
func keysWith(all map[string]string, words ...string) (found []string) {
	for key, value := range all {
		for _, word := range words {
			if strings.Contains(key+value, word) {
				found = append(found, key)
			}
		}
	}
	return found
}

func eraseSession(ctx context.Context, s *redistrace.Store) (memory.ErasureReport, error) {
	if _, err := s.BeginErasure(ctx, erasedSubject, "admin ann", false); err != nil {
		return memory.ErasureReport{}, err
	}
	if err := s.EraseTraces(ctx, erasedSubject.Ref()); err != nil {
		return memory.ErasureReport{}, err
	}
	return s.EndErasure(ctx, erasedSubject)
}

// An erased session leaves only tombstones with ids and counts, whatever the states of its traces. Other sessions
// keep their traces.
func TestStore_ErasesTheTracesOfASession(t *testing.T) {
	for name, addr := range map[string]func(t *testing.T) string{
		"redis":     func(t *testing.T) string { return redistest.Start(t) },
		"miniredis": func(t *testing.T) string { return miniredis.RunT(t).Addr() },
	} {
		t.Run(name, func(t *testing.T) {
			server := addr(t)
			s, client := newStore(t, server), redis.NewClient(&redis.Options{Addr: server})
			t.Cleanup(func() { require.NoError(t, client.Close()) })
			storeTraceWithWords(t, s, 1, "other")
			before := dumpRedis(t, client)
			for n := 11; n < 14; n++ {
				storeTraceWithWords(t, s, n, "s")
			}
			require.NotEmpty(t, keysWith(dumpRedis(t, client), traceRef(11).Trace))

			first, err := eraseSession(t.Context(), s)
			require.NoError(t, err)
			require.Equal(t, map[string]int64{trace.KindTraces: 3, trace.KindEvents: 6, trace.KindDecisions: 6}, first.Removed)
			require.Equal(t, "admin ann", first.RequestedBy)
			after := dumpRedis(t, client)
			for key, value := range before {
				require.Equal(t, value, after[key], key)
				delete(after, key)
			}
			require.Empty(t, keysWith(after, marker))
			require.Len(t, after, 4, "a mark for each trace, and one for the session: %v", after)
			for key := range after {
				require.Positive(t, client.PTTL(t.Context(), key).Val(), key)
			}
			again, err := eraseSession(t.Context(), s)
			require.NoError(t, err)
			require.Equal(t, first, again)
			all, err := s.List(t.Context(), "default", trace.Query{Limit: 9})
			require.NoError(t, err)
			require.Len(t, all, 1)
		})
	}
}

// Late writers are rejected: the owner of a trace, a replica that takes the trace over, a turn without stored
// events, and a caller that cancels.
func TestStore_RejectsLateWritersOfAnErasedSession(t *testing.T) {
	server := redistest.Start(t)
	s, client := newStore(t, server), redis.NewClient(&redis.Options{Addr: server})
	t.Cleanup(func() { require.NoError(t, client.Close()) })
	epoch, _, err := s.Claim(t.Context(), trace.Claim{Tenant: "default", Record: newRecord(1), Events: numberedEvents(1, 1)})
	require.NoError(t, err)
	_, err = eraseSession(t.Context(), s)
	require.NoError(t, err)

	late := numberedEvents(2, 2)
	late[0].Agent = marker
	taken, fresh := newRecord(1), newRecord(2)
	taken.Text, fresh.Text = marker, marker
	for name, write := range map[string]func() error{
		"an event": func() error { return s.Append(t.Context(), traceRef(1), epoch, 0, late, nil) },
		"a result": func() error {
			return s.Append(t.Context(), traceRef(1), epoch, 0, late, &troupev1.TurnResult{Text: marker})
		},
		"a claim": func() error {
			_, _, err := s.Claim(t.Context(), trace.Claim{Tenant: "default", Record: taken, Events: late})
			return err
		},
		"the first": func() error {
			_, _, err := s.Claim(t.Context(), trace.Claim{Tenant: "default", Record: fresh, Events: numberedEvents(1, 1)})
			return err
		},
	} {
		require.True(t, failure.Is(write(), failure.SessionDeleted), name)
	}
	require.NoError(t, s.RequestStop(t.Context(), trace.StopRequest{Ref: traceRef(1), Reason: marker}))
	require.Empty(t, keysWith(dumpRedis(t, client), marker))
	for _, read := range []func() error{
		func() error { _, err := s.Get(t.Context(), traceRef(1)); return err },
		func() error { _, err := s.Load(t.Context(), traceRef(2)); return err },
	} {
		require.True(t, failure.Is(read(), failure.NotFound))
	}
}

// failAfter is a Redis hook that fails every round trip after the given number.
type failAfter struct{ commandsLeft int }

var errCut = errors.New("the connection was cut")

func (f *failAfter) DialHook(next redis.DialHook) redis.DialHook { return next }

func (f *failAfter) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		if f.commandsLeft--; f.commandsLeft < 0 {
			cmd.SetErr(errCut)
			return errCut
		}
		return next(ctx, cmd)
	}
}

func (f *failAfter) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		if f.commandsLeft--; f.commandsLeft < 0 {
			return errCut
		}
		return next(ctx, cmds)
	}
}

// An interrupted erasure is listed as unfinished. Completing it gives the same result as an uninterrupted one and
// counts nothing twice.
func TestStore_CompletesAnInterruptedErasure(t *testing.T) {
	server := redistest.Start(t)
	s, client := newStore(t, server), redis.NewClient(&redis.Options{Addr: server})
	t.Cleanup(func() { require.NoError(t, client.Close()) })
	storeTraceWithWords(t, s, 1, "other") // also loads all scripts into Redis
	_, err := eraseSession(t.Context(), s)
	require.NoError(t, err)
	trips := 0
	for done := false; !done; trips++ {
		require.NoError(t, client.FlushDB(t.Context()).Err())
		storeTraceWithWords(t, s, 11, "s")
		broken := openStoreAt(t, "redis://"+server+"/0?max_retries=-1&pool_size=1")
		require.NoError(t, broken.Ping(t.Context()))
		redistrace.AddHook(broken, &failAfter{commandsLeft: trips})
		_, err := eraseSession(t.Context(), broken)
		done = err == nil
		if !done && trips > 0 {
			require.NoError(t, client.ZAdd(t.Context(), "o:{erasing}:list", redis.Z{Score: float64(-time.Now().UnixMilli()), Member: "default/s/s"}).Err(),
				"a while later")
			found, err := s.UnfinishedErasures(t.Context(), 9)
			require.NoError(t, err)
			require.Equal(t, []trace.Subject{erasedSubject}, found, "cut after %d trips", trips)
			found, err = s.UnfinishedErasures(t.Context(), 9)
			require.NoError(t, err)
			require.Empty(t, found, "each is one caller's")
		}
		e, err := eraseSession(t.Context(), s)
		require.NoError(t, err)
		require.Equal(t, map[string]int64{trace.KindTraces: 1, trace.KindEvents: 2, trace.KindDecisions: 2}, e.Removed, "cut after %d trips", trips)
		require.Empty(t, keysWith(dumpRedis(t, client), marker))
		left := dumpRedis(t, client)
		delete(left, "o:{running}:stops") // an empty stream
		require.Len(t, left, 2)
	}
	require.Greater(t, trips, 8)
}

func TestStore_ErasesInACluster(t *testing.T) {
	s := openStoreAt(t, redistest.StartCluster(t))
	for n := 11; n < 31; n++ {
		storeTraceWithWords(t, s, n, "s")
	}
	e, err := eraseSession(t.Context(), s)
	require.NoError(t, err)
	require.Equal(t, map[string]int64{trace.KindTraces: 20, trace.KindEvents: 40, trace.KindDecisions: 40}, e.Removed)
	for n := 11; n < 31; n++ {
		_, err := s.Get(t.Context(), traceRef(n))
		require.True(t, failure.Is(err, failure.NotFound))
	}
	list, err := s.Decisions(t.Context(), "default", trace.DecisionQuery{Limit: 99})
	require.NoError(t, err)
	require.Empty(t, list)
}

// A user may return after an erasure. A second erasure of this user has its own counts.
func TestStore_ErasesAUserAgain(t *testing.T) {
	s := newStore(t, miniredis.RunT(t).Addr())
	user := trace.Subject{Tenant: "default", User: "alice@example.org"}
	for range 2 {
		begun, err := s.BeginErasure(t.Context(), user, "client alice", true)
		require.NoError(t, err)
		require.Zero(t, begun.Ended)
		require.Empty(t, begun.Removed)
		for range 2 {
			require.NoError(t, s.AddRemoved(t.Context(), user, "s1", map[string]int64{memory.KindMessages: 2}))
		}
		e, err := s.EndErasure(t.Context(), user)
		require.NoError(t, err)
		require.Equal(t, map[string]int64{memory.KindMessages: 2}, e.Removed, "each session counts once")
		require.NotZero(t, e.Ended)
	}
}
