// Package differential makes the same random calls to two stores and compares the replies.
package differential

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"

	gocmp "github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/troupe-dev/troupe/pkg/conversation"
	"github.com/troupe-dev/troupe/pkg/failure"
	"github.com/troupe-dev/troupe/pkg/memory"
	"github.com/troupe-dev/troupe/pkg/memory/memorytest/internal/fixture"
	"github.com/troupe-dev/troupe/pkg/session"
)

// Run makes the same random calls to both stores. The seed determines the calls. Run returns the first difference
// between replies as an error (nil if there is none).
func Run(ctx context.Context, oracle, other memory.Store, ops int, seed uint64) (ReplyCounts, error) {
	d := &comparison{
		oracle: oracle, other: other, seed: seed, replyCounts: ReplyCounts{},
		rand: rand.New(rand.NewPCG(seed, seed)), //nolint:gosec // a seed must give the same calls again
	}
	for range sessionPoolSize {
		d.pool = append(d.pool, d.newTestSession())
	}
	few := max(1, ops/slowCallInterval)
	for range ops {
		s, makers := d.pickSession(few)
		if err := d.compareCall(ctx, s, pickCallMaker(d, makers)(d, s)); err != nil {
			return nil, err
		}
	}
	for _, s := range d.pool {
		if err := d.compareSession(ctx, s); err != nil {
			return nil, err
		}
	}
	return d.replyCounts, nil
}

// pickSession returns a random session and the makers of its next call. few is the number of calls per slow call.
func (d *comparison) pickSession(few int) (*testSession, []callMaker) {
	if d.oneIn(30) {
		return &testSession{ref: session.Ref{Tenant: d.pool[0].ref.Tenant, Session: "nobody"}}, unknownSessionCalls
	}
	i := d.rand.IntN(len(d.pool))
	if d.pool[i].callsLeft == 0 {
		d.pool[i] = d.newTestSession()
	}
	s := d.pool[i]
	if s.isDeleted {
		s.callsLeft--
	}
	switch {
	case d.callCount%few == few-1:
		return s, slowCalls
	case s.isIdle && d.oneIn(3):
		return s, beginCalls
	}
	return s, commonCalls
}

const (
	sessionPoolSize  = 6  // sessions in use at a time
	callsAfterDelete = 20 // calls after a session was deleted
	slowCallInterval = 60 // every 60th call is slow
)

// ReplyCounts counts replies by "Method kind". For a reply of BeginTurn the kind is its status, or continued or
// resumed for a turn that replaces another. The kind of an error is its mode. For a session with pending calls it
// is waiting, and otherwise ok.
type ReplyCounts map[string]int

// Missing returns the possible replies that did not occur. It ignores errors of limits that only hundreds of
// megabytes exceed.
func (r ReplyCounts) Missing() []string {
	var missing []string
	for method, replies := range possibleReplies {
		for reply := range strings.FieldsSeq(replies) {
			if r[method+" "+reply] == 0 {
				missing = append(missing, method+" "+reply)
			}
		}
	}
	slices.Sort(missing)
	return missing
}

// possibleReplies maps each method to the kinds of its possible replies.
var possibleReplies = map[string]string{
	"BeginTurn": "begun continued resumed open closed not_found key_reused session_busy session_closed session_full turn_not_open " +
		"user_invalid_input session_deleted",
	"RenewTurn":      "ok fenced turn_not_open not_found session_deleted",
	"ReleaseTurn":    "ok fenced turn_not_open not_found session_deleted",
	"CommitStep":     "ok fenced turn_not_open base_mismatch session_full state_violation user_invalid_input resource_quota not_found session_deleted",
	"FailTurn":       "ok fenced not_found session_deleted",
	"Record":         "ok nondeterminism fenced turn_not_open resource_quota not_found session_deleted",
	"LoadJournal":    "ok fenced turn_not_open not_found session_deleted",
	"GetSession":     "ok waiting not_found session_deleted",
	"ListSessions":   "ok",
	"LoadHistory":    "ok not_found session_deleted",
	"UpdateSession":  "ok session_busy revision_mismatch resource_quota not_found session_deleted",
	"CompactSession": "ok session_busy not_found session_deleted",
	"ClearSession":   "ok session_busy not_found session_deleted",
	"DeleteSession":  "ok not_found",
	"SearchMemory":   "ok",
	"GetState":       "ok not_found session_deleted",
	"UpdateState":    "ok revision_mismatch fenced turn_not_open state_violation user_invalid_input resource_quota not_found session_deleted",
	"StageArtifact":  "ok user_invalid_input fenced turn_not_open not_found session_deleted",
	"AppendArtifact": "ok base_mismatch user_invalid_input fenced turn_not_open not_found session_deleted",
	"PutArtifact":    "ok base_mismatch user_invalid_input fenced turn_not_open not_found session_deleted",
	"GetArtifact":    "ok not_found session_deleted",
	"ReadArtifact":   "ok not_found session_deleted",
	"ListArtifacts":  "ok not_found session_deleted",
	"DeleteArtifact": "ok fenced turn_not_open not_found session_deleted",
}

type comparison struct {
	oracle, other memory.Store
	seed          uint64
	rand          *rand.Rand
	sessionCount  int // sessions created so far
	callCount     int // calls made so far
	pool          []*testSession
	replyCounts   ReplyCounts
}

// testSession is a session that the comparison uses. It remembers enough to make calls that the stores accept.
type testSession struct {
	ref           session.Ref
	user          string
	lastBegin     memory.Begin // request that began the latest turn
	currentTurn   session.Turn // latest turn, as it was when it began
	lastSequence  int64        // sequence of the last message
	nextStep      int          // number of the next step
	waitingTurnID string       // turn with waiting calls, as far as the replies show
	failedTurn    session.Turn // last turn if it failed, as far as the replies show
	commits       []memory.Commit
	updates       []memory.StateUpdate
	isIdle        bool // whether no turn is open, as far as the replies show
	isDeleted     bool // whether the session was deleted
	callsLeft     int  // number of calls still to make after the deletion
	calls         []call
}

// call is a call of one method, which both stores receive.
type call struct {
	method  string
	input   any // input of the call, for the error message
	make    func(context.Context, memory.Store) (any, error)
	onReply func(reply any) // updates the test session from the reply of the oracle (may be nil)
}

func (d *comparison) newTestSession() *testSession {
	d.sessionCount++
	return &testSession{
		ref:       session.Ref{Tenant: fmt.Sprintf("differ-%d", d.seed), Session: fmt.Sprintf("s-%d", d.sessionCount)},
		user:      pickOne(d, "", "alice", "bob"),
		isIdle:    true,
		callsLeft: callsAfterDelete,
	}
}

var errNone = errors.New("none")

// compareCall makes the call to both stores and compares the replies.
func (d *comparison) compareCall(ctx context.Context, s *testSession, c call) error {
	d.callCount++
	s.calls = append(s.calls, c)
	want, wantErr := c.make(ctx, d.oracle)
	got, gotErr := c.make(ctx, d.other)
	d.replyCounts[c.method+" "+replyKind(want, wantErr)]++
	diff := gocmp.Diff(comparableError(wantErr), comparableError(gotErr))
	if diff == "" && wantErr == nil {
		diff = gocmp.Diff(want, got, ignoredDifferences...)
	}
	if diff != "" {
		return fmt.Errorf("call %d of seed %d: %s (want -, got +)\n%s\nerrors: %w | %w\nthe calls of the session, the last one first:\n%s",
			d.callCount, d.seed, c, diff, cmp.Or(wantErr, errNone), cmp.Or(gotErr, errNone), s.recentCalls())
	}
	if c.onReply != nil && wantErr == nil {
		c.onReply(want)
	}
	return nil
}

// compareSession compares everything that can be read from a session.
func (d *comparison) compareSession(ctx context.Context, s *testSession) error {
	calls := []call{getSession(d, s), listSessions(d, s), loadHistory(d, s), getState(d, s), listArtifacts(d, s)}
	for i := range turnIDCount {
		calls = append(calls, newBeginCall(s, memory.Begin{
			Ref: s.ref, User: s.user, TurnID: turnIDAt(i), TraceID: traceIDs[0], Fingerprint: fingerprintOfTurn(turnIDAt(i)),
			Message: conversation.User("?"), LeaseTTL: memory.MaxLeaseTTL, Window: memory.MaxWindow, LookupOnly: true,
		}))
	}
	for _, text := range artifactTexts {
		calls = append(calls, newReadCall(s, fixture.ContentOf(text)))
	}
	for _, c := range calls {
		if err := d.compareCall(ctx, s, c); err != nil {
			return err
		}
	}
	return nil
}

func (c call) String() string { return fmt.Sprintf("%s %+v", c.method, c.input) }

// recentCalls returns the latest calls of a session, newest first, for an error message.
func (s *testSession) recentCalls() string {
	var b strings.Builder
	for i, c := range slices.Backward(s.calls) {
		text := c.String()
		fmt.Fprintf(&b, "%d: %s\n", i, conversation.Excerpt(text, 400))
		if len(s.calls)-i > 60 {
			break
		}
	}
	return b.String()
}

// ignoredDifferences lists the differences between replies that do not matter.
var ignoredDifferences = []gocmp.Option{
	cmpopts.EquateEmpty(),
	cmpopts.IgnoreFields(conversation.Message{}, "Time"),
	cmpopts.IgnoreFields(session.Session{}, "Created", "LastActivity", "Size.Bytes"),
	cmpopts.IgnoreFields(memory.BeginResult{}, "LeaseLeft"),
	cmpopts.IgnoreFields(memory.Artifact{}, "Created"),
	cmpopts.IgnoreFields(failure.Error{}, "Cause"),
	cmpopts.IgnoreMapEntries(func(_ memory.Scope, revision int64) bool { return revision == 0 }),
}

// comparedFacts are the names of the error facts that are compared.
var comparedFacts = []string{"turn_id", "trace_id", "last_sequence", "revision", "offset", "current_epoch", "key", "owner"}

// comparableError returns the parts of an error that are compared.
func comparableError(err error) map[string]string {
	if err == nil {
		return nil
	}
	v := map[string]string{"mode": string(failure.ModeOf(err))}
	if e, ok := errors.AsType[*failure.Error](err); ok {
		for _, name := range comparedFacts {
			v[name] = e.Facts[name]
		}
	}
	return v
}

func replyKind(reply any, err error) string {
	if err != nil {
		return cmp.Or(string(failure.ModeOf(err)), "unknown")
	}
	switch r := reply.(type) {
	case memory.BeginResult:
		if r.Status == memory.StatusBegun && r.Turn.Continues != "" {
			return "continued"
		}
		if r.Status == memory.StatusBegun && r.Turn.OriginTurnID != "" {
			return "resumed"
		}
		return string(r.Status)
	case session.Session:
		if len(r.Pending) > 0 {
			return "waiting"
		}
	}
	return "ok"
}

// callMaker makes a random call for a session. Makers are picked in proportion to their weights.
type callMaker struct {
	weight int
	make   func(*comparison, *testSession) call
}

// pickCallMaker picks a maker at random, by weight.
func pickCallMaker(d *comparison, makers []callMaker) func(*comparison, *testSession) call {
	all := 0
	for _, m := range makers {
		all += m.weight
	}
	at := d.rand.IntN(all)
	for _, m := range makers {
		if at -= m.weight; at < 0 {
			return m.make
		}
	}
	return makers[0].make
}

// oneIn returns true at random, on average once in n calls.
func (d *comparison) oneIn(n int) bool { return d.rand.IntN(n) == 0 }

func pickOne[T any](d *comparison, choices ...T) T { return choices[d.rand.IntN(len(choices))] }
