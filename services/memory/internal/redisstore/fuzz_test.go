package redisstore

import (
	"encoding/json"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/troupe-dev/troupe/pkg/conversation"
	"github.com/troupe-dev/troupe/pkg/execution"
	"github.com/troupe-dev/troupe/pkg/failure"
	"github.com/troupe-dev/troupe/pkg/memory"
	"github.com/troupe-dev/troupe/pkg/session"
	"github.com/troupe-dev/troupe/services/memory/internal/redisstore/contents"
	"github.com/troupe-dev/troupe/services/memory/internal/redisstore/db"
	"github.com/troupe-dev/troupe/services/memory/internal/redisstore/index"
	"github.com/troupe-dev/troupe/services/memory/internal/redisstore/messages"
	"github.com/troupe-dev/troupe/test/redistest"
)

// Decoding invalid stored data or an invalid page token returns an error and does not panic.
func FuzzDecodeStoredData(f *testing.F) {
	for _, text := range []string{
		"", "1 1700000000000 \x0a\x01a", "1700000000000/s", "-1/", "9223372036854775807/s", "abc-1",
		"1-18446744073709551615", "\x08\x01\x12\x02hi",
	} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		_, _ = messages.DecodeEntry(text, text)
		_ = contents.ParseStagedName(text)
		_, _ = contents.DecodeVersions(map[string]string{text: text, "v:" + text: text})
		r := db.Reply{text, []any{"steps", text, "number", text}, []any{text}, int64(1), nil}
		for i := range len(r) + 1 {
			_, _ = messages.DecodeEntries(r.Array(i))
			_, _, _, _ = r.Text(i), r.Integer(i), r.Array(i), r.Hash(i)
		}
		at, err := index.ParsePageToken("op", text)
		if err != nil {
			require.True(t, failure.Is(err, failure.UserInvalidInput))
			return
		}
		again, err := index.ParsePageToken("op", at.PageToken())
		require.NoError(t, err)
		require.Equal(t, at, again)
	})
}

// No client input makes a script fail in a real Redis. Invalid input is rejected with a documented error.
func FuzzScripts(f *testing.F) {
	s, err := New(Config{URL: "redis://" + redistest.Start(f), MaxMessages: 20, MaxBytes: 1 << 16})
	require.NoError(f, err)
	f.Cleanup(func() { require.NoError(f, s.Close()) })
	for _, text := range []string{"", "a", "user:x", "app:\x00", "{}", "\xff", "1e309", "-0", "%s", "redis.call('FLUSHALL')", "\r\n$1\r\n", "'; return 1 --"} {
		f.Add(text, text, int64(0))
		f.Add("k", text, int64(-1))
	}
	var turns int
	f.Fuzz(func(t *testing.T, key, text string, n int64) {
		turns++
		ref := session.Ref{Tenant: "t", Session: fmt.Sprintf("s%d", turns/50)}
		id := fmt.Sprint("turn", turns)
		fine := func(_ any, err error) {
			t.Helper()
			if err != nil {
				require.NotEqual(t, failure.Unknown, failure.ModeOf(err), "%v", err)
				require.NotContains(t, err.Error(), "user_script")
			}
		}
		begun, err := s.BeginTurn(t.Context(), memory.Begin{
			Ref: ref, User: text, TurnID: id, TraceID: key, Fingerprint: text, LeaseTTL: memory.MinLeaseTTL, Window: 10,
			Message: conversation.Message{Role: conversation.RoleUser, Text: text},
		})
		fine(begun, err)
		hold := memory.Lease{Ref: ref, TurnID: id, Epoch: begun.Turn.Epoch}
		delta := map[string]json.RawMessage{key: json.RawMessage(text), "user:" + key: json.RawMessage(text)}
		fine(s.UpdateState(t.Context(), memory.StateUpdate{Ref: ref, RequestID: text, Delta: delta, TurnID: id, Epoch: n}))
		fine(s.UpdateState(t.Context(), memory.StateUpdate{Ref: ref, RequestID: key, Delta: delta, IfRevision: &n}))
		fine(nil, s.Record(t.Context(), hold, int(n%50)+1, []execution.Entry{{Number: int(n), Phase: execution.Intent, Tool: key, Text: text}}))
		fine(s.LoadJournal(t.Context(), hold, int(n), int(n)))
		fine(s.LoadHistory(t.Context(), ref, n, 10))
		fine(s.CommitStep(t.Context(), memory.Commit{
			Ref: ref, TurnID: id, Epoch: begun.Turn.Epoch, Base: n, State: delta,
			Messages: []conversation.Message{{Role: conversation.RoleAssistant, Author: key, Text: text}}, Result: execution.Result{Step: 1, Text: text},
		}))
		fine(nil, s.RenewTurn(t.Context(), hold, time.Duration(n)))
		_, after, err := s.ListSessions(t.Context(), memory.SessionFilter{Tenant: "t", User: text, Limit: 10, After: key})
		fine(after, err)
		fine(s.FailTurn(t.Context(), memory.Fail{
			Ref: ref, TurnID: id, Epoch: begun.Turn.Epoch, Outcome: session.OutcomeFailed,
			Failure: failure.New(failure.AgentLogic, key, text),
		}))
		require.NoError(t, errors.Join(t.Context().Err(), s.db.Ping(t.Context()).Err()))
	})
}
