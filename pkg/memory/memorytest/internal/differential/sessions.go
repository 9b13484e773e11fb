package differential

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/troupe-dev/troupe/pkg/conversation"
	"github.com/troupe-dev/troupe/pkg/memory"
	"github.com/troupe-dev/troupe/pkg/memory/memorytest/internal/fixture"
	"github.com/troupe-dev/troupe/pkg/session"
)

// commonCalls has the makers of calls that are made all the time.
var commonCalls = []callMaker{
	{24, beginTurn},
	{4, renewTurn},
	{3, releaseTurn},
	{30, commitStep},
	{4, failTurn},
	{10, recordEntries},
	{6, loadJournal},
	{4, getSession},
	{1, listSessions},
	{4, loadHistory},
	{10, updateSession},
	{4, compactSession},
	{2, clearSession},
	{1, deleteSession},
	{2, searchMemory},
	{4, getState},
	{12, updateState},
	{6, stageArtifact},
	{6, appendArtifact},
	{10, putArtifact},
	{4, getArtifact},
	{4, readArtifact},
	{3, listArtifacts},
	{3, deleteArtifact},
}

// beginCalls has the makers for a session without an open turn. The only maker begins a turn, because most other
// calls would be rejected.
var beginCalls = []callMaker{{1, beginTurn}}

// unknownSessionCalls has the makers of calls for a session that does not exist. Calls that would create the
// session are left out.
var unknownSessionCalls = []callMaker{
	{1, getSession},
	{1, loadHistory},
	{1, compactSession},
	{1, clearSession},
	{1, deleteSession},
	{1, getState},
	{1, updateState},
	{1, listArtifacts},
}

// slowCalls has the makers of slow calls.
var slowCalls = []callMaker{{3, updateOversizedState}, {4, recordOversizedJournal}, {4, appendLongContent}, {2, commitOversizedState}, {
	2,
	commitOversizedSharedState,
}, {1, commitForeignState}}

func getSession(_ *comparison, s *testSession) call {
	return call{"GetSession", s.ref, func(ctx context.Context, store memory.Store) (any, error) {
		return store.GetSession(ctx, s.ref)
	}, nil}
}

// listSessions reads all pages. It ignores the order of the sessions, because several of them may be created in
// the same millisecond.
func listSessions(d *comparison, s *testSession) call {
	l := memory.SessionFilter{Tenant: s.ref.Tenant, User: pickOne(d, "", "alice", "bob"), Limit: 1 + d.rand.IntN(4)}
	return call{"ListSessions", l, func(ctx context.Context, store memory.Store) (any, error) {
		var all []session.Session
		for l := l; ; {
			page, next, err := store.ListSessions(ctx, l)
			if err != nil {
				return nil, err
			}
			all = append(all, page...)
			if l.After = next; next == "" {
				slices.SortFunc(all, func(a, b session.Session) int { return cmp.Compare(a.ID, b.ID) })
				return all, nil
			}
		}
	}, nil}
}

func loadHistory(d *comparison, s *testSession) call {
	after, limit := int64(0), memory.MaxWindow
	if d.oneIn(2) {
		after, limit = int64(d.rand.IntN(40)), 1+d.rand.IntN(8)
	}
	return call{"LoadHistory", []any{s.ref, after, limit}, func(ctx context.Context, store memory.Store) (any, error) {
		return store.LoadHistory(ctx, s.ref, after, limit)
	}, nil}
}

func updateSession(d *comparison, s *testSession) call {
	u := memory.SessionUpdate{
		Ref: s.ref, Verb: pickOne(d, "", session.Pause, session.Resume, session.Resume, session.Close, session.Save),
		Metadata: map[string]string{}, Create: d.oneIn(3),
	}
	for range d.rand.IntN(3) {
		u.Metadata[fmt.Sprintf("label-%d", d.rand.IntN(4))] = pickOne(d, "", "x", "y")
	}
	if d.oneIn(30) {
		for i := range memory.MaxSessionMetadata + 1 {
			u.Metadata[fmt.Sprintf("many-%d", i)] = "x"
		}
	}
	if d.oneIn(20) {
		u.Settings = &session.Settings{MaxMessages: pickOne(d, 0, 0, 2, 1), NoAutoSave: d.oneIn(2), AutoCompact: d.oneIn(3)}
	}
	if d.oneIn(4) {
		u.IfRevision = int64(d.rand.IntN(4))
	}
	if u.Create {
		u.User = s.user
	}
	if d.oneIn(20) {
		u.User = pickOne(d, "", "alice", "bob")
	}
	return call{"UpdateSession", u, func(ctx context.Context, store memory.Store) (any, error) {
		return store.UpdateSession(ctx, u)
	}, nil}
}

func compactSession(d *comparison, s *testSession) call {
	c := memory.Compact{
		Ref: s.ref, Keep: d.rand.IntN(8), UpTo: pickOne(d, 0, 0, int64(d.rand.IntN(20))), Summary: pickOne(d, "", "", "They talked.\nOf much."),
		Strategy: pickOne(d, "", conversation.SlidingWindow, conversation.Summarize, conversation.Hierarchical),
	}
	return call{"CompactSession", c, func(ctx context.Context, store memory.Store) (any, error) {
		return store.CompactSession(ctx, c)
	}, nil}
}

func clearSession(_ *comparison, s *testSession) call {
	return call{"ClearSession", s.ref, func(ctx context.Context, store memory.Store) (any, error) {
		return nil, store.ClearSession(ctx, s.ref)
	}, nil}
}

func deleteSession(d *comparison, s *testSession) call {
	return call{"DeleteSession", s.ref, func(ctx context.Context, store memory.Store) (any, error) {
		_, err := store.DeleteSession(ctx, s.ref)
		return nil, err
	}, func(any) { s.isDeleted = true }}
}

// searchMemory searches and ignores the order of hits with the same score.
func searchMemory(d *comparison, s *testSession) call {
	q := memory.Search{Tenant: s.ref.Tenant, User: pickOne(d, "alice", "bob"), Query: randomText(d), Limit: memory.MaxHits}
	return call{"SearchMemory", q, func(ctx context.Context, store memory.Store) (any, error) {
		hits, err := store.SearchMemory(ctx, q)
		slices.SortFunc(hits, func(a, b memory.Hit) int {
			return cmp.Or(cmp.Compare(b.Score, a.Score), cmp.Compare(a.Session, b.Session), cmp.Compare(b.Message.Sequence, a.Message.Sequence))
		})
		if len(hits) == q.Limit { // stores may return different hits among those with the lowest score
			hits = slices.DeleteFunc(hits, func(h memory.Hit) bool { return h.Score == hits[q.Limit-1].Score })
		}
		return hits, err
	}, nil}
}

func getState(_ *comparison, s *testSession) call {
	return call{"GetState", s.ref, func(ctx context.Context, store memory.Store) (any, error) {
		return store.GetState(ctx, s.ref)
	}, nil}
}

// randomDelta returns changes of keys of all scopes.
func randomDelta(d *comparison, scopes ...string) map[string]json.RawMessage {
	changes := map[string]json.RawMessage{}
	for range 1 + d.rand.IntN(3) {
		changes[fmt.Sprintf("%skey-%d", pickOne(d, scopes...), d.rand.IntN(5))] = json.RawMessage(pickOne(d, "", "1", `"two"`, `{"three":3}`))
	}
	if d.oneIn(60) {
		changes[pickOne(d, "trace_id", "_scratch", "temp:x")] = json.RawMessage("1")
	}
	if d.oneIn(60) {
		changes["key"] = json.RawMessage("{")
	}
	return changes
}

func updateState(d *comparison, s *testSession) call {
	h := d.randomLease(s)
	u := memory.StateUpdate{
		Ref: s.ref, RequestID: fmt.Sprintf("r-%d", d.rand.IntN(200)), Delta: randomDelta(d, pickOne(d, "", "", "app:", "user:")),
	}
	if d.oneIn(2) {
		u.TurnID, u.Epoch = h.TurnID, h.Epoch
	}
	if d.oneIn(4) {
		u.IfRevision = new(int64(d.rand.IntN(6)))
	}
	if len(s.updates) > 0 && d.oneIn(4) {
		u = pickOne(d, s.updates...)
	}
	return call{"UpdateState", u, func(ctx context.Context, store memory.Store) (any, error) {
		return store.UpdateState(ctx, u)
	}, func(any) {
		s.updates = append(s.updates, u)
		s.updates = s.updates[max(0, len(s.updates)-4):]
	}}
}

// oversizedState returns more state than a scope may hold.
func oversizedState(scope string) map[string]json.RawMessage {
	changes := map[string]json.RawMessage{}
	for i := range memory.MaxStateBytes/memory.MaxStateValueBytes + 1 {
		changes[fmt.Sprintf("%sbig-%d", scope, i)] = json.RawMessage(`"` + strings.Repeat("a", memory.MaxStateValueBytes-2) + `"`)
	}
	return changes
}

func updateOversizedState(d *comparison, s *testSession) call {
	u := memory.StateUpdate{Ref: s.ref, RequestID: fmt.Sprintf("big-%d", d.callCount), Delta: oversizedState("")}
	return call{"UpdateState", "too much", func(ctx context.Context, store memory.Store) (any, error) {
		return store.UpdateState(ctx, u)
	}, nil}
}

// newStateCommitCall returns a commit of a step that changes only state.
func newStateCommitCall(s *testSession, what string, state map[string]json.RawMessage) call {
	c := memory.Commit{Ref: s.ref, TurnID: s.currentTurn.ID, Epoch: s.currentTurn.Epoch, Base: s.lastSequence, State: state}
	c.Result.Step, c.Result.Agent = max(s.nextStep, 1), "echo"
	return call{"CommitStep", what, func(ctx context.Context, store memory.Store) (any, error) {
		return store.CommitStep(ctx, c)
	}, nil}
}

func commitOversizedState(_ *comparison, s *testSession) call {
	return newStateCommitCall(s, "too much state", oversizedState(""))
}

func commitOversizedSharedState(d *comparison, s *testSession) call {
	return newStateCommitCall(s, "too much shared state", oversizedState(pickOne(d, "app:", "user:")))
}

func commitForeignState(_ *comparison, s *testSession) call {
	return newStateCommitCall(s, "state of the orchestrator", fixture.Delta("trace_id", "1"))
}
