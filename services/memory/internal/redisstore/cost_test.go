package redisstore

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"strconv"
	"testing"

	redis "github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/troupe-dev/troupe/pkg/conversation"
	"github.com/troupe-dev/troupe/pkg/execution"
	"github.com/troupe-dev/troupe/pkg/failure"
	"github.com/troupe-dev/troupe/pkg/memory"
	"github.com/troupe-dev/troupe/pkg/session"
	"github.com/troupe-dev/troupe/services/memory/internal/caller"
	"github.com/troupe-dev/troupe/services/memory/internal/redisstore/db"
	"github.com/troupe-dev/troupe/test/redistest"
)

// callCounter counts the round trips to Redis, and those that changed the server's append-only file. It is not
// safe for concurrent use.
type callCounter struct {
	trips, writes int
	logSize       int64
	logClient     *redis.Client // separate client, whose calls are not counted
}

func (c *callCounter) DialHook(next redis.DialHook) redis.DialHook { return next }

func (c *callCounter) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		defer c.count(ctx)
		return next(ctx, cmd)
	}
}

func (c *callCounter) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		defer c.count(ctx)
		return next(ctx, cmds)
	}
}

func (c *callCounter) count(ctx context.Context) {
	c.trips++
	if size := logBytes(ctx, c.logClient); size != c.logSize {
		c.writes, c.logSize = c.writes+1, size
	}
}

// logBytes returns the size of the server's append-only file in bytes (-1 if the server does not report it).
func logBytes(ctx context.Context, node *redis.Client) int64 {
	info, err := node.InfoMap(ctx, "persistence").Result()
	if err != nil {
		return -1
	}
	size, err := strconv.ParseInt(info["Persistence"]["aof_current_size"], 10, 64)
	if err != nil {
		return -1
	}
	return size
}

// newCountedStore returns a store whose scripts are loaded, and the counter of its calls.
func newCountedStore(t testing.TB, cfg Config) (*Store, *callCounter) {
	t.Helper()
	addr := redistest.Start(t)
	cfg.URL = "redis://" + addr
	s, err := New(cfg)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, s.Close()) })
	for _, script := range db.Scripts() {
		require.NoError(t, script.Load(t.Context(), s.db).Err())
	}
	_, err = s.db.Pipelined(t.Context(), func(p redis.Pipeliner) error { return p.Ping(t.Context()).Err() })
	require.NoError(t, err) // opens the connection for pipelines now, because its handshake would be counted
	c := &callCounter{logClient: redis.NewClient(&redis.Options{Addr: addr, DisableIdentity: true})}
	t.Cleanup(func() { require.NoError(t, c.logClient.Close()) })
	c.logSize = logBytes(t.Context(), c.logClient)
	s.db.AddHook(c)
	return s, c
}

// Each operation takes as many round trips and durable writes as the table in the package comment says.
func TestStore_CostOfOperations(t *testing.T) {
	t.Parallel()
	s, seen := newCountedStore(t, Config{})
	var begun memory.BeginResult
	hold := func() memory.Lease {
		return memory.Lease{Ref: session.Ref{Tenant: "default", Session: "s1"}, TurnID: begun.Turn.ID, Epoch: begun.Turn.Epoch}
	}
	begin := func(turnID string) func() error {
		return func() (err error) {
			b := newBegin("s1", turnID)
			b.User = "alice"
			begun, err = s.BeginTurn(t.Context(), b)
			return err
		}
	}
	commit := func(step int, outcome session.Outcome, state map[string]json.RawMessage) func() error {
		base := begun.Turn.Sequence
		return func() (err error) {
			begun.Turn.Sequence, err = s.CommitStep(t.Context(), memory.Commit{
				Ref: hold().Ref, TurnID: begun.Turn.ID, Epoch: begun.Turn.Epoch, Base: base,
				Messages: []conversation.Message{conversation.Assistant("echo", "hi")},
				Result:   execution.Result{Step: step}, Outcome: outcome, State: state,
			})
			return err
		}
	}
	fail := func() error {
		_, err := s.FailTurn(t.Context(), memory.Fail{
			Ref: hold().Ref, TurnID: begun.Turn.ID, Epoch: begun.Turn.Epoch, Outcome: session.OutcomeFailed,
			Failure: failure.New(failure.NoWorker, "test", "no worker"),
		})
		return err
	}
	beginWith := func(turnID, content string) func() error {
		return func() (err error) {
			b := newBegin("s1", turnID)
			b.User = "alice"
			b.Message.Attachments = []conversation.Attachment{{Name: "sent", Data: []byte(content)}}
			begun, err = s.BeginTurn(t.Context(), b)
			return err
		}
	}
	record := func() error {
		return s.Record(t.Context(), hold(), 1, []execution.Entry{{Number: 1, Phase: execution.Done, Reply: conversation.Assistant("echo", "hm")}})
	}
	update := func(key string) func() error {
		return func() error {
			_, err := s.UpdateState(t.Context(), memory.StateUpdate{
				Ref: hold().Ref, RequestID: "of-" + key, Delta: map[string]json.RawMessage{key: json.RawMessage("1")},
			})
			return err
		}
	}
	bytes := []byte("what the turn made")
	sum := sha256.Sum256(bytes)
	content := memory.Content{SHA256: hex.EncodeToString(sum[:]), Size: int64(len(bytes))}
	only := func(_ any, err error) error { return err }
	costs := func(name string, trips, writes int, do func() error) {
		t.Helper()
		before := *seen
		require.NoError(t, do(), name)
		require.Equal(t, [2]int{trips, writes}, [2]int{seen.trips - before.trips, seen.writes - before.writes}, "trips and writes of "+name)
	}

	costs("begin of a session", 2, 2, begin("t1"))
	costs("begin again", 2, 0, begin("t1"))
	costs("renew", 1, 1, func() error { return s.RenewTurn(t.Context(), hold(), memory.MinLeaseTTL) })
	worker := caller.WithWorker(t.Context(), caller.Worker{Lease: hold(), Step: 1})
	search := memory.Search{Tenant: "default", User: "alice", Query: "hello", Limit: 5}
	costs("renew by a worker", 1, 1, func() error { return s.RenewTurn(worker, hold(), memory.MinLeaseTTL) })
	costs("history to a worker", 1, 0, func() error { return only(s.LoadHistory(worker, hold().Ref, 0, 10)) })
	costs("session to a worker", 1, 0, func() error { return only(s.GetSession(worker, hold().Ref)) })
	costs("state to a worker", 2, 0, func() error { return only(s.GetState(worker, hold().Ref)) })
	costs("search", 2, 0, func() error { return only(s.SearchMemory(t.Context(), search)) })
	costs("search by a worker", 3, 0, func() error { return only(s.SearchMemory(worker, search)) })
	costs("release", 1, 1, func() error { return s.ReleaseTurn(t.Context(), hold()) })
	costs("begin that evicts", 5, 1, begin("t2"))
	costs("record", 1, 1, record)
	costs("record again", 1, 0, record)
	costs("load journal", 1, 0, func() error { return only(s.LoadJournal(t.Context(), hold(), 1, 0)) })
	one := commit(1, session.OutcomeOpen, map[string]json.RawMessage{"key": json.RawMessage("1")})
	costs("commit", 1, 1, one)
	costs("commit again", 1, 0, one)
	costs("load rounds, of which there are none", 1, 0, func() error { return only(s.LoadRounds(t.Context(), hold().Ref, "echo", 0, nil)) })
	costs("commit of app: state", 6, 4, commit(2, session.OutcomeOpen, map[string]json.RawMessage{"app:key": json.RawMessage("1")}))
	costs("commit of app: state that was read", 6, 5, func() (err error) {
		begun.Turn.Sequence, err = s.CommitStep(t.Context(), memory.Commit{
			Ref: hold().Ref, TurnID: begun.Turn.ID, Epoch: begun.Turn.Epoch, Base: begun.Turn.Sequence, Result: execution.Result{Step: 3},
			State: map[string]json.RawMessage{"app:key": json.RawMessage("2")}, Expected: map[string]int64{"app:key": 1},
		})
		return err
	})
	costs("update of app: state in the name of a turn", 4, 4, func() error {
		return only(s.UpdateState(t.Context(), memory.StateUpdate{
			Ref: hold().Ref, TurnID: hold().TurnID, Epoch: hold().Epoch, RequestID: "r1", Delta: map[string]json.RawMessage{"app:key": json.RawMessage("2")},
		}))
	})
	costs("stage", 1, 1, func() error { return only(s.StageArtifact(t.Context(), hold(), content)) })
	costs("append", 2, 1, func() error { return s.AppendArtifact(t.Context(), hold(), content, 0, bytes) })
	costs("put", 1, 1, func() error {
		return only(s.PutArtifact(t.Context(), hold(), memory.Artifact{Content: content, Name: "a"}))
	})
	costs("read artifact", 1, 0, func() error { return only(s.ReadArtifact(t.Context(), hold().Ref, content, 0)) })
	costs("get artifact", 1, 0, func() error { return only(s.GetArtifact(t.Context(), hold().Ref, "a", 0)) })
	costs("put under user: what the session keeps", 9, 6, func() error {
		return only(s.PutArtifact(t.Context(), hold(), memory.Artifact{Content: content, Name: "user:a"}))
	})
	costs("put under user: what the user has", 7, 4, func() error {
		return only(s.PutArtifact(t.Context(), hold(), memory.Artifact{Content: content, Name: "user:b"}))
	})
	costs("get artifact of a user", 2, 0, func() error { return only(s.GetArtifact(t.Context(), hold().Ref, "user:a", 0)) })
	costs("list artifacts", 2, 0, func() error { return only(s.ListArtifacts(t.Context(), hold().Ref)) })
	costs("delete artifact of a user", 6, 4, func() error { return s.DeleteArtifact(t.Context(), hold(), "user:a", 1) })
	costs("delete artifact", 2, 1, func() error { return s.DeleteArtifact(t.Context(), hold(), "a", 1) })
	costs("read artifact of a user", 2, 0, func() error { return only(s.ReadArtifact(t.Context(), hold().Ref, content, 0)) })
	costs("fail", 3, 1, fail)
	costs("fail again", 2, 0, fail)
	costs("begin", 1, 1, begin("t3"))
	costs("begin again, not the first turn", 1, 0, begin("t3"))
	costs("close", 1, 1, commit(1, session.OutcomeCompleted, nil))

	stop := func() error {
		return only(s.CommitStep(t.Context(), memory.Commit{
			Ref: hold().Ref, TurnID: hold().TurnID, Epoch: hold().Epoch, Base: begun.Turn.Sequence, Outcome: session.OutcomeInputRequired,
			Result: execution.Result{Step: 1, InputRequired: true, Pending: []execution.Pending{{ID: "1-2", Tool: "send_mail"}}},
		}))
	}
	require.NoError(t, begin("t4")())
	require.NoError(t, record())
	costs("commit that waits", 1, 1, stop)
	costs("session that waits", 2, 0, func() error { return only(s.GetSession(t.Context(), hold().Ref)) })
	costs("compact while it waits", 4, 1, func() error { return only(s.CompactSession(t.Context(), memory.Compact{Ref: hold().Ref, Keep: 1})) })
	costs("begin that goes on", 2, 1, func() (err error) {
		b := beginWithAnswers(newBegin("s1", "t4"), "t5")
		b.User = "alice"
		begun, err = s.BeginTurn(t.Context(), b)
		return err
	})
	costs("commit that waits again", 1, 1, stop)
	costs("begin that leaves what waits", 2, 1, begin("t6"))
	costs("begin again, what waited is left", 1, 0, begin("t6"))
	costs("close", 1, 1, commit(1, session.OutcomeCompleted, nil))
	costs("begin with a file", 1, 1, beginWith("t7", "one"))
	costs("close", 1, 1, commit(1, session.OutcomeCompleted, nil))
	costs("begin with a file of a name that is known", 2, 1, beginWith("t8", "two"))
	costs("close", 1, 1, commit(1, session.OutcomeCompleted, nil))

	resume := func(from, turnID string) func() error {
		return func() (err error) {
			b := beginWithAnswers(newBegin("s1", from), turnID)
			b.User, b.Predecessor.Resumes, b.Predecessor.Continues, b.Predecessor.Answers = "alice", from, "", nil
			begun, err = s.BeginTurn(t.Context(), b)
			return err
		}
	}
	require.NoError(t, begin("t9")())
	costs("fail", 3, 1, fail)
	costs("begin in the place of one that failed", 1, 1, resume("t9", "t10"))
	require.NoError(t, record())
	costs("fail", 3, 1, fail)
	costs("begin in the place of one that failed in a step with a journal", 2, 1, resume("t10", "t11"))
	costs("fail", 3, 1, fail)
	ref := hold().Ref
	costs("begin of a session with a copy", 2, 2, func() error {
		b := newBegin("s2", "t1")
		b.User = "alice"
		b.Predecessor.Copy = &memory.Copy{
			History: []conversation.Message{conversation.User("hello")},
			State:   map[string]json.RawMessage{"key": json.RawMessage("1")},
		}
		return only(s.BeginTurn(t.Context(), b))
	})
	costs("history", 1, 0, func() error { return only(s.LoadHistory(t.Context(), ref, 0, 10)) })
	costs("session", 1, 0, func() error { return only(s.GetSession(t.Context(), ref)) })
	costs("state", 2, 0, func() error { return only(s.GetState(t.Context(), ref)) })
	costs("update of state", 1, 1, update("key"))
	costs("update of app: state", 2, 1, update("app:key"))
	costs("update", 1, 1, func() error {
		return only(s.UpdateSession(t.Context(), memory.SessionUpdate{Ref: ref, Verb: session.Pause}))
	})
	require.NoError(t, begin("t12")())
	require.NoError(t, record())
	costs("commit with rounds", 1, 1, func() error {
		return only(s.CommitStep(t.Context(), memory.Commit{
			Ref: hold().Ref, TurnID: hold().TurnID, Epoch: hold().Epoch, Base: begun.Turn.Sequence, Outcome: session.OutcomeCompleted,
			Result: execution.Result{Step: 1, Agent: "echo"},
			Rounds: []memory.RoundMessage{{Message: conversation.User("a task")}, {Message: conversation.Assistant("echo", ""), Entry: 1}},
		}))
	})
	costs("load rounds", 2, 0, func() error { return only(s.LoadRounds(t.Context(), hold().Ref, "echo", 0, nil)) })
	costs("list", 2, 0, func() error {
		_, _, err := s.ListSessions(t.Context(), memory.SessionFilter{Tenant: "default", Limit: 10})
		return err
	})
	require.NoError(t, begin("t13")())
	require.NoError(t, commit(1, session.OutcomeCompleted, nil)())
	costs("compact with rounds", 5, 2, func() error { return only(s.CompactSession(t.Context(), memory.Compact{Ref: hold().Ref, Keep: 1})) })
	require.NoError(t, begin("t14")())
	require.NoError(t, commit(1, session.OutcomeCompleted, nil)())
	costs("compact", 3, 1, func() error { return only(s.CompactSession(t.Context(), memory.Compact{Ref: ref, Keep: 1})) })
	costs("clear", 4, 1, func() error { return s.ClearSession(t.Context(), ref) })
	costs("delete", 11, 5, func() error { return only(s.DeleteSession(t.Context(), ref)) })
}
