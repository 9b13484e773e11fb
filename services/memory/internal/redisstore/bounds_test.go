package redisstore

import (
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/troupe-dev/troupe/internal/toolrounds"
	"github.com/troupe-dev/troupe/pkg/conversation"
	"github.com/troupe-dev/troupe/pkg/execution"
	"github.com/troupe-dev/troupe/pkg/failure"
	"github.com/troupe-dev/troupe/pkg/memory"
	"github.com/troupe-dev/troupe/pkg/session"
	"github.com/troupe-dev/troupe/services/memory/internal/redisstore/db"
	"github.com/troupe-dev/troupe/services/memory/internal/redisstore/journal"
	"github.com/troupe-dev/troupe/test/redistest"
)

// createLongSession creates a session of a user. It has the given number of messages, each of the largest size.
func createLongSession(t *testing.T, s *Store, id, text string, messages int) memory.Begin {
	t.Helper()
	b := newBegin(id, "t1")
	b.User, b.Window = "alice", memory.MaxWindow
	begun, err := s.BeginTurn(t.Context(), b)
	require.NoError(t, err)
	for step, left := 1, messages-1; left > 0; step++ {
		c := newCommit(b, begun.Turn)
		c.Outcome, c.Result.Step, c.Messages = session.OutcomeOpen, step, nil
		for range min(left, 20) {
			c.Messages = append(c.Messages, conversation.Assistant("echo", strings.Repeat(text, conversation.MaxMessageBytes/len(text))))
		}
		left -= len(c.Messages)
		begun.Turn.Sequence, err = s.CommitStep(t.Context(), c)
		require.NoError(t, err)
	}
	_, err = s.FailTurn(t.Context(), memory.Fail{
		Ref: b.Ref, TurnID: b.TurnID, Epoch: begun.Turn.Epoch, Outcome: session.OutcomeFailed, Failure: failure.New(failure.NoWorker, "test", "no worker"),
	})
	require.NoError(t, err)
	return b
}

// sentBytes returns the number of bytes that Redis has sent to its clients.
func sentBytes(t *testing.T, s *Store) int64 {
	t.Helper()
	info, err := s.db.InfoMap(t.Context(), "stats").Result()
	require.NoError(t, err)
	bytes, err := strconv.ParseInt(info["Stats"]["total_net_output_bytes"], 10, 64)
	require.NoError(t, err)
	return bytes
}

// A call reads little more from Redis than it returns, however long the session is.
func TestStore_ReadsLittleMoreThanItReturns(t *testing.T) {
	t.Parallel()
	s, err := New(Config{URL: "redis://" + redistest.StartServer(t, "--appendonly", "no").Addr})
	require.NoError(t, err)
	defer s.Close()
	const messages, spare = 100, 1 << 20
	b := createLongSession(t, s, "long", "lake ", messages)

	before := sentBytes(t, s)
	b.TurnID = "t2"
	begun, err := s.BeginTurn(t.Context(), b)
	require.NoError(t, err)
	require.Len(t, begun.History, memory.MaxWindowBytes/conversation.MaxMessageBytes+1, "with the short one of the turn")
	require.Less(t, sentBytes(t, s)-before, int64(memory.MaxWindowBytes+spare))

	before = sentBytes(t, s)
	read := 0
	for after := int64(0); ; {
		page, err := s.LoadHistory(t.Context(), b.Ref, after, memory.MaxWindow)
		require.NoError(t, err)
		if len(page) == 0 {
			break
		}
		read, after = read+len(page), page[len(page)-1].Sequence
	}
	require.Equal(t, messages+1, read)
	require.Less(t, sentBytes(t, s)-before, int64(3*messages*conversation.MaxMessageBytes/2))

	// The search reads the newest session, and ends within the session before it.
	createLongSession(t, s, "longer", "sea ", memory.MaxSearchedBytes/conversation.MaxMessageBytes)
	before = sentBytes(t, s)
	hits, err := s.SearchMemory(t.Context(), memory.Search{Tenant: "default", User: "alice", Query: "lake hello", Limit: memory.MaxHits})
	require.NoError(t, err)
	require.Less(t, sentBytes(t, s)-before, int64(2*memory.MaxSearchedBytes))
	require.Len(t, hits, 2, "the first message of the one and the last of the other")
	for _, h := range hits {
		require.Equal(t, "hello", h.Message.Text)
	}
}

// The whole history of an agent can be read page by page, even if more steps follow one message than a page holds, and
// committed in any order.
//
// Req: CO-69
func TestStore_PagesTheHistoryOfAnAgent(t *testing.T) {
	t.Parallel()
	s, err := New(Config{URL: "redis://" + redistest.StartServer(t, "--appendonly", "no").Addr})
	require.NoError(t, err)
	defer s.Close()
	b := newBegin("paged", "t1")
	begun, err := s.BeginTurn(t.Context(), b)
	require.NoError(t, err)
	for _, step := range []int{4, 1, 7, 2, 6, 3, 5} {
		c := newCommit(b, begun.Turn)
		c.Outcome, c.Result.Step, c.Messages = session.OutcomeOpen, step, nil
		for range 4 {
			c.Rounds = append(c.Rounds, memory.RoundMessage{Message: conversation.User(strings.Repeat(strconv.Itoa(step), conversation.MaxMessageBytes))})
		}
		_, err = s.CommitStep(t.Context(), c)
		require.NoError(t, err)
	}
	pages := 0
	all, err := toolrounds.All(func(before *conversation.Rounds) ([]conversation.Rounds, error) {
		page, err := s.LoadRounds(t.Context(), b.Ref, "echo", 0, before)
		require.LessOrEqual(t, len(page), 2, "3 steps have more than 3 MiB")
		pages++
		return page, err
	})
	require.NoError(t, err)
	require.Equal(t, 5, pages, "three of 2 steps, one of 1, and an empty one")
	for i, r := range all {
		require.Equal(t, i+1, r.Step)
		require.True(t, strings.HasPrefix(r.Messages[3].Text, strconv.Itoa(r.Step)))
	}
	require.Len(t, all, 7)
}

// A session expires even if it has an open turn whose worker never returns.
func TestStore_ExpireRemovesAbandonedTurns(t *testing.T) {
	t.Parallel()
	s := openStore(t, "redis://"+redistest.Start(t))
	refs := map[string]session.Ref{}
	for _, id := range []string{"abandoned", "held"} {
		b := newBegin(id, "t1")
		_, err := s.BeginTurn(t.Context(), b)
		require.NoError(t, err)
		refs[id] = b.Ref
		require.NoError(t, s.db.ZAdd(t.Context(), db.IndexKey("default", ""), newIndexEntry(id, 1)).Err())
		require.NoError(t, s.db.HSet(t.Context(), db.Key(b.Ref, "meta"), "active", "1").Err())
	}
	require.NoError(t, s.db.HSet(t.Context(), db.Key(refs["abandoned"], "meta"), "deadline", "2").Err())
	count, err := s.Expire(t.Context(), "default", time.Hour)
	require.NoError(t, err)
	require.Equal(t, 1, count)
	_, err = s.GetSession(t.Context(), refs["abandoned"])
	require.Equal(t, failure.SessionDeleted, failure.ModeOf(err), "%v", err)
	_, err = s.GetSession(t.Context(), refs["held"])
	require.NoError(t, err)
}

func TestStore_EvictionDeletesTheJournal(t *testing.T) {
	t.Parallel()
	s := openStore(t, "redis://"+redistest.Start(t))
	b := newBegin("s1", "t1")
	begun, err := s.BeginTurn(t.Context(), b)
	require.NoError(t, err)
	h := memory.Lease{Ref: b.Ref, TurnID: b.TurnID, Epoch: begun.Turn.Epoch}
	require.NoError(t, s.Record(t.Context(), h, 1, []execution.Entry{{Number: 1, Phase: execution.Done, Reply: conversation.Assistant("echo", "hm")}}))
	require.NoError(t, s.ReleaseTurn(t.Context(), h))
	_, err = s.BeginTurn(t.Context(), newBegin("s1", "t2"))
	require.NoError(t, err)
	require.Zero(t, s.db.Exists(t.Context(), db.Key(b.Ref, db.JournalName("t1", 1))).Val())
}

// Old turns are deleted, so the list of a session's turns does not grow without limit.
func TestStore_DeletesOldTurns(t *testing.T) {
	t.Parallel()
	server := miniredis.RunT(t)
	now := time.UnixMilli(1_700_000_000_000)
	s := openStore(t, "redis://"+server.Addr())
	known := func() int {
		members, err := server.ZMembers(db.Key(newBegin("s1", "").Ref, "turns"))
		require.NoError(t, err)
		return len(members)
	}
	for day := range 40 {
		server.SetTime(now.Add(time.Duration(day) * 24 * time.Hour))
		b := newBegin("s1", fmt.Sprint(day))
		begun, err := s.BeginTurn(t.Context(), b)
		require.NoError(t, err)
		_, err = s.FailTurn(t.Context(), memory.Fail{
			Ref: b.Ref, TurnID: b.TurnID, Epoch: begun.Turn.Epoch, Outcome: session.OutcomeCancelled,
			Failure: failure.New(failure.NoWorker, "test", "no worker"),
		})
		require.NoError(t, err)
		require.GreaterOrEqual(t, known(), min(day+1, 14), "each as long as it may be asked for, and longer")
		require.Less(t, known(), 14+16)
	}
}

// A deletion removes the keys of all turns, even of a session with many turns.
func TestStore_DeletesManyTurns(t *testing.T) {
	t.Parallel()
	s := openStore(t, "redis://"+redistest.Start(t))
	b, _ := createFullSession(t, s, "s1")
	_, err := s.db.Pipelined(t.Context(), func(p redis.Pipeliner) error {
		for i := range 2*journal.BatchSize + 1 {
			id := fmt.Sprint("old-", i)
			p.ZAdd(t.Context(), db.Key(b.Ref, "turns"), newIndexEntry(id, float64(i/3)))
			p.HSet(t.Context(), db.Key(b.Ref, "turn:"+id), "steps", "3")
			p.HSet(t.Context(), db.Key(b.Ref, db.JournalName(id, 4)), "bytes", "0")
		}
		return nil
	})
	require.NoError(t, err)
	require.NoError(t, errorOf(s.DeleteSession(t.Context(), b.Ref)))
	require.Equal(t, []string{db.Key(b.Ref, "meta")}, sessionKeys(t, s, b.Ref))
}
