package redistrace

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/redis/go-redis/v9"
	"google.golang.org/protobuf/proto"

	"github.com/troupe-dev/troupe/pkg/failure"
	troupev1 "github.com/troupe-dev/troupe/pkg/gen/troupe/v1"
	"github.com/troupe-dev/troupe/services/orchestrator/internal/trace"
)

//go:embed scripts/claim.lua
var claimSource string

//go:embed scripts/enter_session.lua
var enterSessionSource string

//go:embed scripts/enter_child.lua
var enterChildSource string

var (
	claimScript        = redis.NewScript(claimSource)
	enterSessionScript = redis.NewScript(enterSessionSource)
	enterChildScript   = redis.NewScript(enterChildSource)
)

// maxListLength is how many traces a list holds.
const maxListLength = 10_000

// writer implements the writing methods of trace.Store.
type writer struct {
	conn   *conn
	eraser *eraser
}

// Claim implements trace.Store.
func (w *writer) Claim(ctx context.Context, c trace.Claim) (int64, uint64, error) {
	const op = "trace.Claim"
	body, err := proto.Marshal(c.Record)
	if err != nil {
		return 0, 0, fmt.Errorf("%s: %w", op, err)
	}
	args, err := appendEvents([]any{
		c.Record.GetOwner(), body, runningTTL.Milliseconds(),
		c.Turn.User, c.Turn.Fingerprint, c.Turn.TurnEpoch, c.Turn.Timeout.Milliseconds(), c.Turn.HasCredentials,
		c.Turn.Labels, c.Turn.Parent,
	}, c.Events)
	if err != nil {
		return 0, 0, fmt.Errorf("%s: %w", op, err)
	}
	reply, erased, err := w.claimAndList(ctx, c, args)
	if err != nil {
		return 0, 0, w.conn.Failure(op, err)
	}
	if erased { // the session was erased before the claim
		subject := sessionSubject(c.Tenant, c.Record.GetSessionId())
		if _, err := w.eraser.BeginErasure(ctx, subject, "the erasure of its parent session", false); err != nil {
			return 0, 0, err
		}
		if err := w.eraser.eraseTrace(ctx, subject, c.Ref()); err != nil {
			return 0, 0, err
		}
		reply[0] = "ERASED"
	}
	switch reply[0] {
	case "ERASED":
		return 0, 0, traceErasedError(op, c.Ref())
	case "ENDED":
		return 0, 0, failure.New(failure.TurnNotOpen, op, "the trace has ended")
	case "FENCED":
		return 0, 0, failure.New(failure.Fenced, op, "another orchestrator drives the turn now").With("turn_epoch", reply[1])
	}
	epoch, err1 := strconv.ParseInt(reply[1], 10, 64)
	last, err2 := strconv.ParseUint(reply[2], 10, 64)
	if err := errors.Join(err1, err2); err != nil {
		return 0, 0, fmt.Errorf("%s: reply %q: %w", op, reply, err)
	}
	return epoch, last, nil
}

// evalFunc is the type of EvalSha and Eval for a script.
type evalFunc func(context.Context, redis.Scripter, []string, ...any) *redis.Cmd

// claimAndList sends the claim, the entry in the tenant's list and the entry in the list of open traces in one
// round trip. The tenant's list holds the newest maxListLength traces. If the entry in the list of open traces
// fails, the next heartbeat of the owner adds it.
//
// Before that, it adds the trace to the list of its session, and the session to the list of the parent trace. Both
// of these scripts also return whether the session is erased.
func (w *writer) claimAndList(ctx context.Context, c trace.Claim, args []any) (_ []string, erased bool, _ error) {
	pointers := decisionPointers(c.Ref(), c.Events)
	lease := heartbeatArgs(trace.Heartbeat{Owned: []trace.Ref{c.Ref()}, LeaseTime: trace.LeaseTime})
	traces, mark := sessionKeys(sessionSubject(c.Tenant, c.Record.GetSessionId()))
	send := func(enter, enterChild, claim, beat evalFunc) ([]string, bool, error) {
		var entered, child, claimed, leased *redis.Cmd
		_, err := w.conn.Pipelined(ctx, func(p redis.Pipeliner) error {
			entered = enter(ctx, p, []string{traces, mark}, c.Record.GetTraceId(), w.conn.longestRetention().Milliseconds())
			if c.Turn.Parent != "" {
				parent := trace.Ref{Tenant: c.Tenant, Trace: c.Turn.Parent}
				child = enterChild(ctx, p, []string{recordKey(parent), childrenKey(parent)}, c.Record.GetSessionId(), w.conn.longestRetention().Milliseconds())
			}
			claimed = claim(ctx, p, traceKeys(c.Ref()), args...)
			if c.Turn != (trace.TurnInfo{}) {
				leased = beat(ctx, p, openKeys, lease...)
			}
			w.addToLists(ctx, p, c)
			w.addPointers(ctx, p, pointers)
			return nil
		})
		onlyLeaseFailed := leased != nil && leased.Err() != nil && entered.Err() == nil && (child == nil || child.Err() == nil) &&
			claimed.Err() == nil && !redis.HasErrorPrefix(err, "NOSCRIPT")
		if err != nil && !onlyLeaseFailed {
			return nil, false, err
		}
		reply, err := claimed.StringSlice()
		erased, _ := entered.Bool()
		if child != nil {
			parentErased, _ := child.Bool()
			erased = erased || parentErased
		}
		return reply, erased, err
	}
	reply, erased, err := send(enterSessionScript.EvalSha, enterChildScript.EvalSha, claimScript.EvalSha, heartbeatScript.EvalSha)
	if redis.HasErrorPrefix(err, "NOSCRIPT") {
		return send(enterSessionScript.Eval, enterChildScript.Eval, claimScript.Eval, heartbeatScript.Eval)
	}
	return reply, erased, err
}

// addToLists adds a trace to the lists of its tenant, its run and its user.
func (w *writer) addToLists(ctx context.Context, p redis.Pipeliner, c trace.Claim) {
	id, started := c.Record.GetTraceId(), c.Record.GetStarted().AsTime()
	p.ZAddNX(ctx, indexKey(c.Tenant), redis.Z{Score: float64(started.UnixMilli()), Member: id})
	p.ZRemRangeByRank(ctx, indexKey(c.Tenant), 0, -maxListLength-1)
	if root := c.Record.GetRootTraceId(); root != "" && root != id {
		w.addExpiring(ctx, p, runKey(c.Tenant, root), id, started)
	}
	w.addSessionOfUser(ctx, p, c)
}

// addExpiring adds a trace to a list that expires, unless the list already contains it.
func (w *writer) addExpiring(ctx context.Context, p redis.Pipeliner, key, id string, at time.Time) {
	p.ZAddNX(ctx, key, redis.Z{Score: float64(at.UnixMilli()), Member: id})
	p.ZRemRangeByRank(ctx, key, 0, -maxListLength-1)
	p.PExpire(ctx, key, w.conn.longestRetention())
}

// addSessionOfUser adds the session of a trace to the list of its user. An erasure of the user finds the traces
// through this list, even when the memory service no longer has the session.
func (w *writer) addSessionOfUser(ctx context.Context, p redis.Pipeliner, c trace.Claim) {
	if c.Turn.User == "" {
		return
	}
	now, key := time.Now(), userSessionsKey(c.Tenant, c.Turn.User)
	p.ZAdd(ctx, key, redis.Z{Score: float64(now.UnixMilli()), Member: c.Record.GetSessionId()})
	p.ZRemRangeByScore(ctx, key, "-inf", strconv.FormatInt(now.Add(-w.conn.longestRetention()).UnixMilli(), 10))
	p.PExpire(ctx, key, w.conn.longestRetention())
}

// appendEvents appends the sequence and the encoding of each event to the arguments of a script.
func appendEvents(args []any, events []*troupev1.Event) ([]any, error) {
	for _, e := range events {
		body, err := proto.Marshal(e)
		if err != nil {
			return nil, err
		}
		args = append(args, e.GetSequence(), body)
	}
	return args, nil
}
