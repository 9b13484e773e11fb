package redisstore

import (
	"context"
	"crypto/rand"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/troupe-dev/troupe/internal/stepjournal"
	"github.com/troupe-dev/troupe/pkg/conversation"
	"github.com/troupe-dev/troupe/pkg/execution"
	"github.com/troupe-dev/troupe/pkg/memory"
	"github.com/troupe-dev/troupe/pkg/session"
	"github.com/troupe-dev/troupe/services/memory/internal/redisstore/db"
	"github.com/troupe-dev/troupe/services/memory/internal/redisstore/messages"
	"github.com/troupe-dev/troupe/services/memory/internal/redisstore/turns"
	"github.com/troupe-dev/troupe/test/redistest"
)

// BenchmarkTurn runs turns from begin to answer. Each client uses its own session. It compares them with the same
// writes without checks, in one transaction per call. Every write is synced to disk.
func BenchmarkTurn(b *testing.B) {
	s, err := New(Config{URL: "redis://" + redistest.Start(b), MaxMessages: 1 << 40, MaxBytes: 1 << 40})
	require.NoError(b, err)
	defer s.Close()
	for _, clients := range []int{1, 16, 64} {
		b.Run(fmt.Sprintf("clients=%d", clients), func(b *testing.B) {
			// The two kinds of turns alternate, so that a slow disk affects both.
			var bare, store time.Duration
			turns := 0
			for left := b.N; left > 0; left -= turnsPerBatch {
				n := min(left, turnsPerBatch)
				bare += runClients(b, clients, n, func(ref session.Ref, n int) error { return runUncheckedTurn(b.Context(), s.db, ref, n) })
				store += runClients(b, clients, n, func(ref session.Ref, n int) error { return runTurn(b.Context(), s, ref, n) })
				turns += n
			}
			b.ReportMetric(float64(turns)/store.Seconds(), "turns/s")
			b.ReportMetric(float64(turns)/bare.Seconds(), "bare-turns/s")
			b.ReportMetric(bare.Seconds()/store.Seconds(), "ratio")
			b.ReportMetric(0, "ns/op")
		})
	}
}

// turnsPerBatch is how many turns of one kind run before the other kind runs.
const turnsPerBatch = 200

// runClients runs turns with several clients and returns how long they took.
func runClients(b *testing.B, clients, turns int, turn func(ref session.Ref, n int) error) time.Duration {
	b.Helper()
	var next atomic.Int64
	var working sync.WaitGroup
	errs := make([]error, clients)
	start := time.Now()
	for c := range clients {
		working.Go(func() {
			ref := session.Ref{Tenant: "default", Session: rand.Text()}
			for n := 0; next.Add(1) <= int64(turns) && errs[c] == nil; n++ {
				errs[c] = turn(ref, n)
			}
		})
	}
	working.Wait()
	took := time.Since(start)
	for _, err := range errs {
		require.NoError(b, err)
	}
	return took
}

func runTurn(ctx context.Context, s *Store, ref session.Ref, n int) error {
	q := newBegin(ref.Session, fmt.Sprint(n))
	begun, err := s.BeginTurn(ctx, q)
	if err != nil {
		return err
	}
	_, err = s.CommitStep(ctx, newCommit(q, begun.Turn))
	return err
}

// runUncheckedTurn sends the Redis commands of runTurn without its checks.
func runUncheckedTurn(ctx context.Context, client redis.UniversalClient, ref session.Ref, n int) error {
	q := newBegin(ref.Session, fmt.Sprint(n))
	said, err := messages.EncodeBody(q.Message)
	if err != nil {
		return err
	}
	meta, log, turn := db.Key(ref, "meta"), db.Key(ref, "log"), db.Key(ref, "turn:"+q.TurnID)
	now := time.Now().UnixMilli()
	_, err = client.TxPipelined(ctx, func(p redis.Pipeliner) error {
		p.XAdd(ctx, &redis.XAddArgs{Stream: log, ID: fmt.Sprintf("%d-0", 2*n+1), Values: []any{"m", said}})
		p.ZAdd(ctx, db.Key(ref, "turns"), redis.Z{Score: float64(now), Member: q.TurnID})
		p.HSet(ctx, turn, "trace", q.TraceID, "holder", q.TraceID, "fingerprint", "f", "number", n+1, "outcome", "",
			"epoch", n+1, "attempt", 1, "first", 2*n+1, "seq", 2*n+1, "steps", 0)
		p.HSet(ctx, meta, "schema", db.Schema, "state", "busy", "user", "", "epoch", n+1, "deadline", now, "open", q.TurnID,
			"open_trace", q.TraceID, "last_trace", q.TraceID, "turns", n+1, "seq", 2*n+1, "count", 2*n+1, "bytes", 7*n, "active", now, "created", now)
		p.XRevRangeN(ctx, log, "+", "-", int64(q.Window))
		return nil
	})
	if err != nil {
		return err
	}
	_, err = client.TxPipelined(ctx, func(p redis.Pipeliner) error {
		p.XAdd(ctx, &redis.XAddArgs{Stream: log, ID: fmt.Sprintf("%d-0", 2*n+2), Values: []any{"m", said}})
		p.HSet(ctx, turn, "sha1", strings.Repeat("0", 64), "result1", said, "steps", 1, "seq", 2*n+2, "outcome", "completed")
		p.HSet(ctx, meta, "seq", 2*n+2, "count", 2*n+2, "bytes", 7*n, "active", now,
			"state", "ready", "open", "", "open_trace", "")
		p.Del(ctx, db.Key(ref, db.JournalName(q.TurnID, 1)))
		p.PExpire(ctx, turn, turns.Retention)
		return nil
	})
	return err
}

// BenchmarkLoadHistory reads whole histories in the largest pages. Each message has 200 bytes.
func BenchmarkLoadHistory(b *testing.B) {
	s, err := New(Config{URL: "redis://" + redistest.StartServer(b, "--appendonly", "no").Addr})
	require.NoError(b, err)
	defer s.Close()
	for _, messages := range []int{10, 1000, 10_000} {
		b.Run(fmt.Sprintf("messages=%d", messages), func(b *testing.B) {
			ref := createFilledSession(b, s, messages)
			for b.Loop() {
				read := 0
				for after := int64(0); ; {
					page, err := s.LoadHistory(b.Context(), ref, after, memory.MaxWindow)
					require.NoError(b, err)
					if len(page) == 0 {
						break
					}
					read, after = read+len(page), page[len(page)-1].Sequence
				}
				require.Equal(b, messages, read)
			}
		})
	}
}

// createFilledSession creates a session with the given number of messages.
func createFilledSession(b *testing.B, s *Store, messages int) session.Ref {
	b.Helper()
	q := newBegin(rand.Text(), "t1")
	begun, err := s.BeginTurn(b.Context(), q)
	require.NoError(b, err)
	for step, left := 1, messages-1; left > 0; step++ {
		c := newCommit(q, begun.Turn)
		c.Outcome, c.Result.Step, c.Messages = session.OutcomeOpen, step, nil
		for range min(left, 200) {
			c.Messages = append(c.Messages, conversation.Assistant("echo", strings.Repeat("a", 200)))
		}
		left -= len(c.Messages)
		begun.Turn.Sequence, err = s.CommitStep(b.Context(), c)
		require.NoError(b, err)
	}
	return q.Ref
}

// BenchmarkJournal measures what the journal adds to a turn of one step. Each model call asks for one tool. After
// it, one write records the reply, the previous tool result and the intent of the next tool call. Replies and
// results have 1 KiB.
func BenchmarkJournal(b *testing.B) {
	s, seen := newCountedStore(b, Config{})
	for _, calls := range []int{1, 10, 50, 200} {
		b.Run(fmt.Sprintf("calls=%d", calls), func(b *testing.B) {
			before := *seen
			for b.Loop() {
				q := newBegin(rand.Text(), "t1")
				begun, err := s.BeginTurn(b.Context(), q)
				require.NoError(b, err)
				h := memory.Lease{Ref: q.Ref, TurnID: q.TurnID, Epoch: begun.Turn.Epoch}
				for call := range calls {
					require.NoError(b, s.Record(b.Context(), h, 1, newRoundEntries(call)))
				}
				_, err = s.CommitStep(b.Context(), newCommit(q, begun.Turn))
				require.NoError(b, err)
			}
			b.ReportMetric(float64(seen.logSize-before.logSize)/float64(b.N), "log-B/turn")
			b.ReportMetric(float64(seen.writes-before.writes)/float64(b.N), "writes/turn")
		})
	}
}

// newRoundEntries returns the journal entries of a step's nth model call, counted from 0: the result of the
// previous tool, the reply, and the intent of the next tool call.
func newRoundEntries(n int) []execution.Entry {
	text := strings.Repeat("a", 1<<10)
	entries := []execution.Entry{
		{
			Number: 2*n + 1, Phase: execution.Done, Reply: conversation.Assistant("echo", text),
			Usage: execution.Usage{InputTokens: 1000, OutputTokens: 250, ModelCalls: 1},
		},
		{Number: 2*n + 2, Phase: execution.Intent, Digest: stepjournal.CallDigest("search", "{}"), Tool: "search", Effect: execution.AtMostOnce},
	}
	if n == 0 {
		return entries
	}
	return append([]execution.Entry{{
		Number: 2 * n, Phase: execution.Done, Digest: stepjournal.CallDigest("search", "{}"), Tool: "search",
		Effect: execution.AtMostOnce, Status: "success", Text: text,
	}}, entries...)
}
