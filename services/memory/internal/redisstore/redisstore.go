// Package redisstore keeps the MEMORY tier in Redis 7, Valkey or a Redis Cluster: one Lua
// script per write, so that each is atomic and fenced by the store itself.
//
// All keys of a session share the hash tag {tenant/session}, and so one Cluster slot:
//
//	m:{T/S}:meta         hash: schema, state, epoch, turns, seq, bytes, created, active,
//	                     last_trace; open, open_trace and deadline of the open turn
//	m:{T/S}:log          stream, ids <sequence>-0: b a troupe.v1.Message, n the number of
//	                     its turn, t its time
//	m:{T/S}:turn:<turn>  hash: trace, fingerprint, number, outcome, epoch, attempt, first,
//	                     seq, steps, failure; first is the user's message; holder, the trace that began it or took it over
//	                     last; sha<n> and result<n> of each committed step. Expires 7 days
//	                     after the turn was closed
//
// Times are milliseconds of Redis's own clock; an empty outcome is that of an open turn.
//
// What an operation costs, once the scripts are in Redis's cache:
//
//	                round trips  durable writes
//	BeginTurn       1            1   (0 when the turn is known and not taken over)
//	 …that evicts   2            1
//	CommitStep      1            1   (0 when it is a repeat)
//	FailTurn        1            1   (0 when the turn is closed)
//	GetSession      1            0
//	LoadHistory     1            0   (2 round trips when nothing is found)
//
// An acknowledged write is on disk only if Redis runs with appendonly yes and appendfsync
// always; Durable tells.
package redisstore

import (
	"cmp"
	"context"
	_ "embed"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/troupe-dev/troupe/pkg/memory"
	"github.com/troupe-dev/troupe/pkg/redisconn"
	"github.com/troupe-dev/troupe/pkg/session"
)

var _ memory.Store = (*Store)(nil)

// retention is how long a closed turn answers repeated requests. It exceeds every time
// for which a client goes on trying.
const retention = 7 * 24 * time.Hour

//go:embed scripts/prelude.lua
var prelude string

//go:embed scripts/begin.lua
var beginSource string

//go:embed scripts/commit.lua
var commitSource string

//go:embed scripts/fail.lua
var failSource string

// Config is where the store is and what it allows.
type Config struct {
	URL string // as redisconn.Open takes it
	// MaxMessages and MaxBytes of a session; 0 means session.MaxMessages, session.MaxBytes.
	MaxMessages, MaxBytes int64
	// Generation of the data: epochs are at least Generation · 2³², so that data that
	// went back in time cannot mint an epoch twice.
	Generation int64
}

// Store is the MEMORY tier over one Redis. It takes the bounds of package memory for
// granted: the RPC edge checks them. Safe for concurrent use; Close it.
type Store struct {
	memory.Store // until all of it is here
	redis        *redisconn.Conn
	cfg          Config

	begin, commit, fail *redis.Script
}

// New returns a store. It connects when first used, and reconnects by itself.
func New(cfg Config) (*Store, error) {
	conn, err := redisconn.Open(cfg.URL)
	if err != nil {
		return nil, err
	}
	cfg.MaxMessages = cmp.Or(cfg.MaxMessages, session.MaxMessages)
	cfg.MaxBytes = cmp.Or(cfg.MaxBytes, session.MaxBytes)
	return &Store{
		redis:  conn,
		cfg:    cfg,
		begin:  redis.NewScript(prelude + beginSource),
		commit: redis.NewScript(prelude + commitSource),
		fail:   redis.NewScript(prelude + failSource),
	}, nil
}

// Addr is where Redis is, without credentials.
func (s *Store) Addr() string { return s.redis.Addr() }

// Ping returns nil when Redis answers and takes commands.
func (s *Store) Ping(ctx context.Context) error { return s.redis.Answers(ctx) }

// Durable returns nil when every acknowledged write is on disk, and else an error that
// names the setting that is missing (guarantees 0.2).
func (s *Store) Durable(ctx context.Context) error { return s.redis.Durable(ctx) }

// Close ends all connections. Calls in flight fail.
func (s *Store) Close() error { return s.redis.Close() }

// keys are KEYS of every script: meta, log, turn.
func keys(ref session.Ref, turnID string) []string {
	return []string{key(ref, "meta"), key(ref, "log"), key(ref, "turn:"+turnID)}
}

func key(ref session.Ref, name string) string {
	return "m:{" + ref.Tenant + "/" + ref.Session + "}:" + name
}

// run runs a script, in one round trip unless Redis has to be sent its text first.
func (s *Store) run(ctx context.Context, op string, script *redis.Script, keys []string, args []any) (reply, error) {
	r, err := script.Run(ctx, s.redis, keys, args...).Slice()
	if err != nil {
		return nil, s.redis.Fault(op, err)
	}
	return r, nil
}
