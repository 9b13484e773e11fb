package redisstore

import (
	"context"
	"fmt"
	"strconv"
	"sync"
	"testing"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/troupe-dev/troupe/pkg/conversation"
	"github.com/troupe-dev/troupe/pkg/execution"
	"github.com/troupe-dev/troupe/pkg/failure"
	"github.com/troupe-dev/troupe/pkg/memory"
	"github.com/troupe-dev/troupe/pkg/session"
	"github.com/troupe-dev/troupe/test/redistest"
)

func ask(sessionID, turnID string) memory.Begin {
	return memory.Begin{
		Ref: session.Ref{Tenant: "default", Session: sessionID}, TurnID: turnID,
		TraceID: "0af7651916cd43dd8448eb211c80319c", Fingerprint: "f",
		Message: conversation.User("hello"), Lease: memory.MaxLease, Window: 10,
	}
}

func answer(b memory.Begin, turn session.Turn) memory.Commit {
	return memory.Commit{
		Ref: b.Ref, TurnID: turn.ID, Epoch: turn.Epoch, Base: turn.Sequence,
		Messages: []conversation.Message{conversation.Assistant("echo", "hi")},
		Result:   execution.Result{Step: 1, Agent: "echo", Text: "hi"},
		Outcome:  session.OutcomeCompleted,
	}
}

// The server is killed as by kill -9 while writers write; what was acknowledged to them
// must be there afterwards, and what was not may be repeated.
func TestStore_AcknowledgedCommitsSurviveKill(t *testing.T) {
	server := redistest.New(t)
	s := openStore(t, "redis://"+server.Addr)
	const writers = 8
	acknowledged := make([]int, writers)
	warm, killed := make(chan struct{}, writers*1000), make(chan struct{})
	var work sync.WaitGroup
	for w := range writers {
		work.Go(func() {
			for turn := 0; ; turn++ {
				b := ask(fmt.Sprintf("w%d-%d", w, turn), "t1")
				begun, err := s.BeginTurn(t.Context(), b)
				if err == nil {
					_, err = s.CommitStep(t.Context(), answer(b, begun.Turn))
				}
				if err != nil {
					return
				}
				acknowledged[w] = turn + 1
				select {
				case warm <- struct{}{}:
				case <-killed:
				}
			}
		})
	}
	for range writers * 20 {
		<-warm
	}
	server.Kill()
	close(killed)
	work.Wait()
	server.Start()

	for w, turns := range acknowledged {
		for turn := range turns {
			b := ask(fmt.Sprintf("w%d-%d", w, turn), "t1")
			messages, err := s.LoadHistory(t.Context(), b.Ref, 0, 10)
			require.NoError(t, err)
			require.Len(t, messages, 2)
		}
		// The one in doubt is carried to its end by repeating it.
		b := ask(fmt.Sprintf("w%d-%d", w, turns), "t1")
		begun, err := s.BeginTurn(t.Context(), b)
		require.NoError(t, err)
		if begun.Found != memory.FoundClosed {
			_, err = s.CommitStep(t.Context(), answer(b, begun.Turn))
			require.NoError(t, err)
		}
		messages, err := s.LoadHistory(t.Context(), b.Ref, 0, 10)
		require.NoError(t, err)
		require.Len(t, messages, 2)
	}
}

// counter counts what goes to Redis.
type counter struct{ trips int }

func (c *counter) DialHook(next redis.DialHook) redis.DialHook { return next }

func (c *counter) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		c.trips++
		return next(ctx, cmd)
	}
}

func (c *counter) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		c.trips++
		return next(ctx, cmds)
	}
}

// written is how many bytes of writes are in the server's log.
func written(t *testing.T, s *Store) int64 {
	t.Helper()
	info, err := s.redis.InfoMap(t.Context(), "persistence").Result()
	require.NoError(t, err)
	size, err := strconv.ParseInt(info["Persistence"]["aof_current_size"], 10, 64)
	require.NoError(t, err)
	return size
}

// The table in the package's comment, measured.
func TestStore_CostOfOperations(t *testing.T) {
	s := openStore(t, "redis://"+redistest.Start(t))
	var seen counter
	s.redis.AddHook(&seen)
	costs := func(name string, trips int, writes bool, do func() error) {
		t.Helper()
		before, had := written(t, s), seen
		require.NoError(t, do(), name)
		require.Equal(t, trips, seen.trips-had.trips, name)
		require.Equal(t, writes, written(t, s) > before, name)
	}
	// The first call of each script sends its text.
	warm := ask("warm", "t1")
	begun, err := s.BeginTurn(t.Context(), warm)
	require.NoError(t, err)
	_, err = s.CommitStep(t.Context(), answer(warm, begun.Turn))
	require.NoError(t, err)
	_, err = s.FailTurn(t.Context(), memory.Fail{Ref: warm.Ref, TurnID: "t1", Epoch: 1, Outcome: session.OutcomeFailed})
	require.NoError(t, err)

	b := ask("s1", "t1")
	begin := func() (err error) { begun, err = s.BeginTurn(t.Context(), b); return err }
	commit := func() error { _, err := s.CommitStep(t.Context(), answer(b, begun.Turn)); return err }
	costs("begin", 1, true, begin)
	first := begun
	costs("begin again", 1, false, begin)
	begun = first
	costs("commit", 1, true, commit)
	costs("commit again", 1, false, commit)
	costs("history", 1, false, func() error { _, err := s.LoadHistory(t.Context(), b.Ref, 0, 10); return err })
	costs("session", 1, false, func() error { _, err := s.GetSession(t.Context(), b.Ref); return err })
	b = ask("s1", "t2")
	costs("begin the next", 1, true, begin)
	fail := func() error {
		_, err := s.FailTurn(t.Context(), memory.Fail{
			Ref: b.Ref, TurnID: b.TurnID, Epoch: begun.Turn.Epoch, Outcome: session.OutcomeFailed,
			Failure: failure.New(failure.NoWorker, "test", "nobody"),
		})
		return err
	}
	costs("fail", 1, true, fail)
	costs("fail again", 1, false, fail)
}

func TestStore_ClosedTurnsExpire(t *testing.T) {
	s := openStore(t, "redis://"+redistest.Start(t))
	b := ask("s1", "t1")
	begun, err := s.BeginTurn(t.Context(), b)
	require.NoError(t, err)
	left := func() (ttl int64) {
		ttl, err := s.redis.Do(t.Context(), "PTTL", key(b.Ref, "turn:t1")).Int64()
		require.NoError(t, err)
		return ttl
	}
	require.EqualValues(t, -1, left(), "an open turn never expires")
	_, err = s.CommitStep(t.Context(), answer(b, begun.Turn))
	require.NoError(t, err)
	require.InDelta(t, retention.Milliseconds(), left(), 60_000)
}

func TestStore_GenerationLiftsEpochs(t *testing.T) {
	url := "redis://" + redistest.Start(t)
	s := openStore(t, url)
	b := ask("s1", "t1")
	begun, err := s.BeginTurn(t.Context(), b)
	require.NoError(t, err)
	require.EqualValues(t, 1, begun.Turn.Epoch)
	_, err = s.CommitStep(t.Context(), answer(b, begun.Turn))
	require.NoError(t, err)

	restored, err := New(Config{URL: url, Generation: 2})
	require.NoError(t, err)
	defer restored.Close()
	begun, err = restored.BeginTurn(t.Context(), ask("s1", "t2"))
	require.NoError(t, err)
	require.EqualValues(t, 2<<32, begun.Turn.Epoch)
}
