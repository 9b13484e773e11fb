// Package redistrace keeps traces in Redis, one Lua script per write.
//
//	o:{tenant/trace}:rec   hash    record (protobuf), owner, epoch, last, ended, result (protobuf); user,
//	                               fingerprint, turn_epoch, timeout, since, credentials, labels, above, stop
//	o:{tenant/trace}:ev    stream  the durable events, ids <sequence>-0
//	o:{tenant/trace}:below  zset   sessions in which its agents had others work
//	o:idx:{tenant}         zset    traces by start, for lists; eventual
//	o:run:{tenant/root}    zset    traces by start of a run that has more than the one it began with; eventual
//	o:quarantine:{tenant}  zset    quarantined traces by their end; eventual
//	o:audit:{tenant}:TYPE  zset    events that tell of decisions, <trace>/<sequence>, by time
//	o:{tenant/session}:traces  zset  traces of a session by their last claim
//	o:{tenant/session}:erased  hash  the mark of a session that is erased: by, began, ended, and n:<kind>
//	o:{tenant/u/user}:sessions  zset  sessions in which the user had traces, by their last claim
//	o:{tenant/u/user}:erased   hash  that of a user; also of:<session> of each that was counted
//	o:{erasing}:list       zset    erasures that have not ended, by minus the ms until when somebody is at it
//	o:{running}:roll       zset    traces that run, <tenant>/<trace>, by minus the ms until when they are vouched for
//	o:{running}:stops      stream  traces that shall end; the latest
//
// Of a trace that was erased the record holds erased, last and decisions, for a week.
//
// The keys of a trace share a slot, so every operation touches one. A trace is found by its
// id within the caller's tenant, without an index. Round trips and durable writes: Claim
// 1 and 1 (and beside it the index, the roll, the audit and the list of the trace above, which may be in other slots), Append
// 1 and 1 (and beside it the audit), Get 1, Load 1, Events 1, Decisions 2 for 200 of a type, or 1
// for 200 events of a trace, Beat 1 for a thousand traces and 1 when there are any.
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

	"github.com/troupe-dev/troupe/internal/redisconn"
	"github.com/troupe-dev/troupe/pkg/failure"
	troupev1 "github.com/troupe-dev/troupe/pkg/gen/troupe/v1"
	"github.com/troupe-dev/troupe/pkg/memory"
	"github.com/troupe-dev/troupe/services/orchestrator/internal/trace"
)

//go:embed scripts/claim.lua
var claimSource string

//go:embed scripts/append.lua
var appendSource string

//go:embed scripts/load.lua
var loadSource string

//go:embed scripts/beat.lua
var beatSource string

//go:embed scripts/stop.lua
var stopSource string

// runningTTL is how long a trace is kept that nobody ends.
const runningTTL = 7 * 24 * time.Hour

// pendingTTL is how long a trace is kept at least whose turn ended with calls that wait, or that
// is quarantined: as long as memory.Retention keeps the turn. The turn that goes on needs to know
// its target, and an operator what took the workers down.
const pendingTTL = memory.Retention

// Store implements trace.Store.
type Store struct {
	redis     *redisconn.Conn
	retention time.Duration

	claim, append, load, beat, stop *redis.Script
}

// New returns a store in Redis. Retention is how long a trace is kept after its end; one with
// calls that wait is kept for a week at least. The caller closes it.
func New(link redisconn.Config, retention time.Duration) (*Store, error) {
	conn, err := redisconn.New(link)
	if err != nil {
		return nil, err
	}
	return &Store{
		redis: conn, retention: retention,
		stop:  redis.NewScript(stopSource),
		claim: redis.NewScript(claimSource), append: redis.NewScript(appendSource), load: redis.NewScript(loadSource), beat: redis.NewScript(beatSource),
	}, nil
}

// needs is what the scripts and the commands beside them use. Those of the user in
// deploy/redis/users.acl are these, and what connections want.
var needs = redisconn.Needs{Prefix: "o:", Commands: []string{
	"eval", "evalsha", "exists", "time", "unlink", "pexpire", "hexists", "hgetall", "hincrby", "hmget", "hset", "hsetnx",
	"xadd", "xdel", "xrange", "zadd", "zrem", "zrevrange", "zrevrangebyscore", "zremrangebyrank", "zremrangebyscore",
}}

// Ping returns nil when the store takes writes, and lets the service do all that it does. What
// the store says is a *probe.RefusedError.
func (s *Store) Ping(ctx context.Context) error { return s.redis.Serves(ctx, needs) }

// Addr is where the store is, without credentials.
func (s *Store) Addr() string { return s.redis.Addr() }

// Close ends all connections. Calls in flight fail.
func (s *Store) Close() error { return s.redis.Close() }

func keys(ref trace.Ref) []string {
	tag := "o:{" + ref.Tenant + "/" + ref.Trace + "}:"
	return []string{tag + "rec", tag + "ev"}
}

// Claim implements trace.Store.
func (s *Store) Claim(ctx context.Context, c trace.Claim) (int64, uint64, error) {
	const op = "trace.Claim"
	body, err := proto.Marshal(c.Record)
	if err != nil {
		return 0, 0, fmt.Errorf("%s: %w", op, err)
	}
	args, err := appendEvents([]any{
		c.Record.GetOwner(), body, runningTTL.Milliseconds(),
		c.Terms.User, c.Terms.Fingerprint, c.Terms.TurnEpoch, c.Terms.Timeout.Milliseconds(), c.Terms.Credentials,
		c.Terms.Labels, c.Terms.Above,
	}, c.Events)
	if err != nil {
		return 0, 0, fmt.Errorf("%s: %w", op, err)
	}
	reply, erased, err := s.claimAndList(ctx, c, args)
	if err != nil {
		return 0, 0, s.redis.Fault(op, err)
	}
	if erased { // what this claim wrote is late, and what the memory service has of the session may be too
		if _, err := s.Condemn(ctx, of(c.Tenant, c.Record.GetSessionId()), "the erasure of the session above it", false); err != nil {
			return 0, 0, err
		}
		if err := s.eraseTrace(ctx, of(c.Tenant, c.Record.GetSessionId()), c.Ref()); err != nil {
			return 0, 0, err
		}
		reply[0] = "ERASED"
	}
	switch reply[0] {
	case "ERASED":
		return 0, 0, wasErased(op, c.Ref())
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

// claimAndList sends the claim, the entry in the tenant's list and that on the roll together.
// The list holds the newest maxIndex. A trace that did not get onto the roll comes there with
// the next beat of its owner.
//
// The trace enters the list of its session first, which also tells whether that is erased, and the
// session enters the list of the trace above it.
func (s *Store) claimAndList(ctx context.Context, c trace.Claim, args []any) (_ []string, erased bool, _ error) {
	index, entry := indexKey(c.Tenant), redis.Z{Score: float64(c.Record.GetStarted().AsTime().UnixMilli()), Member: c.Record.GetTraceId()}
	pointers := notes(c.Ref(), c.Events)
	onRoll := beatArgs(trace.Beat{Mine: []trace.Ref{c.Ref()}, Vouch: trace.Vouch})
	type eval func(context.Context, redis.Scripter, []string, ...any) *redis.Cmd
	traces, mark := sessionKeys(of(c.Tenant, c.Record.GetSessionId()))
	send := func(enter, enterBelow, claim, beat eval) ([]string, bool, error) {
		var entered, hung, reply, vouched *redis.Cmd
		_, err := s.redis.Pipelined(ctx, func(p redis.Pipeliner) error {
			entered = enter(ctx, p, []string{traces, mark}, c.Record.GetTraceId(), s.kept().Milliseconds())
			if c.Terms.Above != "" {
				above := trace.Ref{Tenant: c.Tenant, Trace: c.Terms.Above}
				hung = enterBelow(ctx, p, []string{keys(above)[0], belowKey(above)}, c.Record.GetSessionId(), s.kept().Milliseconds())
			}
			reply = claim(ctx, p, keys(c.Ref()), args...)
			if c.Terms != (trace.Terms{}) {
				vouched = beat(ctx, p, rollKeys, onRoll...)
			}
			p.ZAddNX(ctx, index, entry)
			p.ZRemRangeByRank(ctx, index, 0, -maxIndex-1)
			if root := c.Record.GetRootTraceId(); root != "" && root != c.Record.GetTraceId() {
				s.enlist(ctx, p, runKey(c.Tenant, root), c.Record.GetTraceId(), c.Record.GetStarted().AsTime())
			}
			s.visit(ctx, p, c)
			s.note(ctx, p, pointers)
			return nil
		})
		tolerable := vouched != nil && vouched.Err() != nil && entered.Err() == nil && (hung == nil || hung.Err() == nil) && reply.Err() == nil && !redis.HasErrorPrefix(err, "NOSCRIPT")
		if err != nil && !tolerable {
			return nil, false, err
		}
		answer, err := reply.StringSlice()
		marked, _ := entered.Bool()
		if hung != nil {
			late, _ := hung.Bool()
			marked = marked || late
		}
		return answer, marked, err
	}
	reply, erased, err := send(enterScript.EvalSha, belowScript.EvalSha, s.claim.EvalSha, s.beat.EvalSha)
	if redis.HasErrorPrefix(err, "NOSCRIPT") {
		return send(enterScript.Eval, belowScript.Eval, s.claim.Eval, s.beat.Eval)
	}
	return reply, erased, err
}

// kept is the longest that anything of a trace is there, from its last claim on.
func (s *Store) kept() time.Duration { return max(runningTTL, pendingTTL) + s.retention }

// Append implements trace.Store.
func (s *Store) Append(ctx context.Context, ref trace.Ref, ownerEpoch, turnEpoch int64, events []*troupev1.Event, result *troupev1.TurnResult) error {
	const op = "trace.Append"
	if len(events) == 0 {
		return nil
	}
	var ending []byte
	if result != nil {
		var err error
		if ending, err = proto.Marshal(result); err != nil {
			return fmt.Errorf("%s: %w", op, err)
		}
	}
	retention := s.retention
	if len(result.GetPending()) > 0 || trace.Quarantined(result) {
		retention = max(retention, pendingTTL)
	}
	args, err := appendEvents([]any{ownerEpoch, ending, retention.Milliseconds(), turnEpoch}, events)
	if err != nil {
		return fmt.Errorf("%s: %w", op, err)
	}
	reply, err := s.appendNoted(ctx, ref, events, result, args)
	if err != nil {
		return s.redis.Fault(op, err)
	}
	switch reply[0] {
	case "OK":
		return nil
	case "FENCED":
		return failure.New(failure.Fenced, op, "another orchestrator drives the trace now").With("owner_epoch", reply[1])
	case "NOT_FOUND":
		return notFound(op, ref)
	case "ERASED":
		return wasErased(op, ref)
	default:
		return fmt.Errorf("%s: the store answers %q to events from %d", op, reply, events[0].GetSequence())
	}
}

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

func notFound(op string, ref trace.Ref) error {
	return failure.Newf(failure.NotFound, op, "trace_id: no trace %s is known; traces are kept for a while after they end", ref.Trace)
}
