// Package redistrace keeps traces in Redis, one Lua script per write. Four types share one connection:
// writer claims and appends, reader reads and lists, openTraces keeps the leases of the owners, and eraser
// erases. Store composes them.
//
//	o:{tenant/trace}:rec   hash    record (protobuf), owner, epoch, last, ended, result (protobuf); user,
//	                               fingerprint, turn_epoch, timeout, since, credentials, labels, parent (the
//	                               parent trace), stop
//	o:{tenant/trace}:ev    stream  the durable events, ids <sequence>-0
//	o:{tenant/trace}:children  zset   child sessions in which agents work for it
//	o:idx:{tenant}         zset    traces by start, for lists; eventual
//	o:run:{tenant/root}    zset    traces by start of a run with more traces than the one it began with; eventual
//	o:quarantine:{tenant}  zset    quarantined traces by their end; eventual
//	o:audit:{tenant}:TYPE  zset    events with decisions, <trace>/<sequence>, by time
//	o:{tenant/session}:traces  zset  traces of a session by their last claim
//	o:{tenant/session}:erased  hash  the mark of an erased session: by, began, ended, and n:<kind>
//	o:{tenant/u/user}:sessions  zset  sessions in which the user had traces, by their last claim
//	o:{tenant/u/user}:erased   hash  the mark of an erased user; also of:<session> for each that was counted
//	o:{erasing}:list       zset    unfinished erasures, by minus the ms until which one caller works on them
//	o:{running}:open       zset    open traces, <tenant>/<trace>, by minus the ms until which they are leased
//	o:{running}:stops      stream  the latest requests to stop a trace
//
// The record of an erased trace holds erased, last and decisions, for a week.
//
// The keys of a trace share a slot, so every operation touches one slot. A trace is found by its id within
// the caller's tenant, without an index. Round trips and durable writes: Claim 1 and 1 (and with it the
// index, the list of open traces, the audit and the list of the parent trace, which may be in other slots),
// Append 1 and 1 (and with it the audit), Get 1, Load 1, Events 1, Decisions 2 for 200 of a type, or 1 for
// 200 events of a trace, Heartbeat 1 for a thousand traces and 1 when there are any.
package redistrace

import (
	"context"
	"time"

	"github.com/troupe-dev/troupe/internal/redisconn"
	"github.com/troupe-dev/troupe/pkg/failure"
	"github.com/troupe-dev/troupe/pkg/memory"
	"github.com/troupe-dev/troupe/services/orchestrator/internal/trace"
)

var _ trace.Store = (*Store)(nil)

// runningTTL is how long a trace without an end is kept.
const runningTTL = 7 * 24 * time.Hour

// pendingTTL is the minimum retention of a trace that has pending calls or is quarantined. It equals
// memory.Retention, for which the turn is kept. The turn that continues needs the target of the trace, and an
// operator needs to find out what crashed the workers.
const pendingTTL = memory.Retention

// Store implements trace.Store. It is safe for concurrent use.
type Store struct {
	*writer
	*reader
	*openTraces
	*eraser

	conn *conn
}

// New returns a trace store backed by Redis. retention is how long a trace is kept after its end; a trace with
// pending calls is kept for at least a week. The caller closes the store.
func New(link redisconn.Config, retention time.Duration) (*Store, error) {
	client, err := redisconn.New(link)
	if err != nil {
		return nil, err
	}
	c := &conn{client, retention}
	r := &reader{c}
	e := &eraser{c, r}
	return &Store{writer: &writer{c, e}, reader: r, openTraces: &openTraces{c}, eraser: e, conn: c}, nil
}

// requiredCommands are the Redis commands that the scripts and the other calls use. The user of the service in
// deploy/redis/users.acl may use these, and the commands for connections.
var requiredCommands = redisconn.Permissions{Prefix: "o:", Commands: []string{
	"eval", "evalsha", "exists", "time", "unlink", "pexpire", "hexists", "hgetall", "hincrby", "hmget", "hset", "hsetnx",
	"xadd", "xdel", "xrange", "zadd", "zrem", "zrevrange", "zrevrangebyscore", "zremrangebyrank", "zremrangebyscore",
}}

// Ping returns nil when Redis accepts writes and permits every command that the service uses. If Redis itself
// replies with an error, Ping returns a *probe.NotServingError.
func (s *Store) Ping(ctx context.Context) error { return s.conn.CheckServing(ctx, requiredCommands) }

// Addr returns the address of Redis, without credentials.
func (s *Store) Addr() string { return s.conn.Addr() }

// Close ends all connections. Calls in flight fail.
func (s *Store) Close() error { return s.conn.Close() }

// conn is the connection that the parts of a Store share.
type conn struct {
	*redisconn.Conn
	retention time.Duration
}

// longestRetention is the longest time for which any data of a trace is kept after its last claim.
func (c *conn) longestRetention() time.Duration { return max(runningTTL, pendingTTL) + c.retention }

// failure converts an error of Redis to a failure (nil for nil).
func (c *conn) failure(op string, err error) error {
	if err == nil {
		return nil
	}
	return c.Failure(op, err)
}

func notFoundError(op string, ref trace.Ref) error {
	return failure.Newf(failure.NotFound, op, "trace_id: no trace %s is known; traces are kept for a while after they end", ref.Trace)
}

func traceErasedError(op string, ref trace.Ref) error {
	return failure.Newf(failure.SessionDeleted, op, "the session of trace %s was erased, and the trace with it; begin a new session", ref.Trace).
		With("trace_id", ref.Trace)
}
