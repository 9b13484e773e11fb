package redisstore

import (
	"fmt"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/troupe-dev/troupe/pkg/conversation"
	"github.com/troupe-dev/troupe/pkg/execution"
	"github.com/troupe-dev/troupe/pkg/memory"
	"github.com/troupe-dev/troupe/pkg/session"
	"github.com/troupe-dev/troupe/services/memory/internal/redisstore/db"
	"github.com/troupe-dev/troupe/services/memory/internal/redisstore/turns"
	"github.com/troupe-dev/troupe/test/redistest"
)

func newBegin(sessionID, turnID string) memory.Begin {
	return memory.Begin{
		Ref: session.Ref{Tenant: "default", Session: sessionID}, TurnID: turnID,
		TraceID: "0af7651916cd43dd8448eb211c80319c", Fingerprint: "f",
		Message: conversation.User("hello"), LeaseTTL: memory.MaxLeaseTTL, Window: 10,
	}
}

func newCommit(b memory.Begin, turn session.Turn) memory.Commit {
	return memory.Commit{
		Ref: b.Ref, TurnID: turn.ID, Epoch: turn.Epoch, Base: turn.Sequence,
		Messages: []conversation.Message{conversation.Assistant("echo", "hi")},
		Result:   execution.Result{Step: 1, Agent: "echo", Text: "hi"},
		Outcome:  session.OutcomeCompleted,
	}
}

// Acknowledged writes survive a SIGKILL of the server, and a call that got no answer can be repeated.
func TestStore_AcknowledgedCommitsSurviveKill(t *testing.T) {
	t.Parallel()
	server := redistest.StartServer(t)
	s := openStore(t, "redis://"+server.Addr)
	const writers = 8
	acknowledged := make([]int, writers)
	warm, killed := make(chan struct{}, writers*1000), make(chan struct{})
	var work sync.WaitGroup
	for w := range writers {
		work.Go(func() {
			for turn := 0; ; turn++ {
				b := newBegin(fmt.Sprintf("w%d-%d", w, turn), "t1")
				begun, err := s.BeginTurn(t.Context(), b)
				if err == nil {
					_, err = s.CommitStep(t.Context(), newCommit(b, begun.Turn))
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
			b := newBegin(fmt.Sprintf("w%d-%d", w, turn), "t1")
			messages, err := s.LoadHistory(t.Context(), b.Ref, 0, 10)
			require.NoError(t, err)
			require.Len(t, messages, 2)
		}
		// A repetition of the call whose answer was lost completes it.
		b := newBegin(fmt.Sprintf("w%d-%d", w, turns), "t1")
		begun, err := s.BeginTurn(t.Context(), b)
		require.NoError(t, err)
		if begun.Status != memory.StatusClosed {
			_, err = s.CommitStep(t.Context(), newCommit(b, begun.Turn))
			require.NoError(t, err)
		}
		messages, err := s.LoadHistory(t.Context(), b.Ref, 0, 10)
		require.NoError(t, err)
		require.Len(t, messages, 2)
	}
}

func TestStore_ClosedTurnsExpire(t *testing.T) {
	t.Parallel()
	s := openStore(t, "redis://"+redistest.Start(t))
	b := newBegin("s1", "t1")
	begun, err := s.BeginTurn(t.Context(), b)
	require.NoError(t, err)
	left := func() (ttl int64) {
		ttl, err := s.db.Do(t.Context(), "PTTL", db.Key(b.Ref, "turn:t1")).Int64()
		require.NoError(t, err)
		return ttl
	}
	require.EqualValues(t, -1, left(), "an open turn never expires")
	_, err = s.CommitStep(t.Context(), newCommit(b, begun.Turn))
	require.NoError(t, err)
	require.InDelta(t, turns.Retention.Milliseconds(), left(), 60_000)
}

func TestStore_GenerationRaisesEpochs(t *testing.T) {
	t.Parallel()
	url := "redis://" + redistest.Start(t)
	s := openStore(t, url)
	b := newBegin("s1", "t1")
	begun, err := s.BeginTurn(t.Context(), b)
	require.NoError(t, err)
	require.EqualValues(t, 1, begun.Turn.Epoch)
	_, err = s.CommitStep(t.Context(), newCommit(b, begun.Turn))
	require.NoError(t, err)

	restored, err := New(Config{URL: url, Generation: func() (int64, error) { return 2, nil }})
	require.NoError(t, err)
	defer restored.Close()
	begun, err = restored.BeginTurn(t.Context(), newBegin("s1", "t2"))
	require.NoError(t, err)
	require.EqualValues(t, 2<<32, begun.Turn.Epoch)
}
