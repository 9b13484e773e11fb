// Package redisstore keeps the MEMORY tier in Redis 7, Valkey or a Redis Cluster: one Lua script per
// write, so that each write is atomic and fenced by Redis itself. The parts of the contract are in
// separate packages, which this package combines. Package db has the layout of the keys.
//
// # Costs
//
// The table shows the cost of each operation, without loading its scripts. In durability class D2 a write also
// waits for a replica:
//
//	                 round trips  durable writes
//	BeginTurn        1            1   (0 when the turn is known and not taken over)
//	 …the first      2            2   (it enters the session in the indexes)
//	 …that evicts    5            1
//	 …after a wait   2            1   (it continues with the calls, or drops them)
//	 …that resumes   1            1   (2 and 1 when a step that failed has a journal)
//	 …with a copy    2            2
//	 …with files     1            1   (2 and 1 when the session knows one of their names)
//	 …with results   +1           0   (alone in its window, which is too short for their round)
//	RenewTurn        1            1
//	ReleaseTurn      1            1
//	CommitStep       1            1   (0 when it is a repeat)
//	 …for a scope    +5           +3  (app: state; user: 1 trip more)
//	FailTurn         3            1   (2 and 0 when the turn is closed)
//	Record           1            1   (0 when all entries are stored)
//	LoadJournal      1            0
//	Recording        1            0
//	LoadRounds       2            0   (1 without rounds, or when no journal has a part of them)
//	LoadHistory      1            0
//	GetSession       1            0   (2 trips when calls wait)
//	ListSessions     2            0
//	UpdateSession    1            1
//	CompactSession   3            1   (+1 trip for each 100 messages after the first,
//	                                  and one when calls wait; +4 and +1 when journals are kept;
//	                                  +2 and +1 for each agent with rounds)
//	ClearSession     4            1   (+2 trips when journals are kept, +1 for each agent with rounds)
//	DeleteSession    11           6   (+3 trips for each 500 turns after the first, +1 for each agent
//	                                  with rounds, and 1 and 1 for all of them)
//	SearchMemory     1 + 1 for each 100 messages of a session (and 1 more for a worker)
//	GetState         2            0   (1 without a user)
//	UpdateState      1            1   (2 and 1 for app: and user:; 4 and 4 on behalf of a turn)
//	GetConfig        1            0
//	PutConfig        1            1   (0 when all of it is there already)
//	StageArtifact    1            1
//	AppendArtifact   2            1   (for each piece)
//	PutArtifact      1            1
//	 …under user:    7            5   (+2 and +1 for each piece; 7 and 4 when the user has it)
//	GetArtifact      1            0   (2 trips under user:)
//	ReadArtifact     1            0   (for each piece; 2 trips for a content of the user)
//	ListArtifacts    2            0   (1 without a user)
//	DeleteArtifact   2            1   (6 and 4 under user:)
//
// An acknowledged write is on disk only if Redis runs with appendonly yes and appendfsync always; see
// Store.CheckDurability.
package redisstore

import (
	"cmp"
	"context"
	"slices"
	"time"

	"github.com/troupe-dev/troupe/internal/redisconn"
	"github.com/troupe-dev/troupe/pkg/memory"
	"github.com/troupe-dev/troupe/pkg/session"
	"github.com/troupe-dev/troupe/services/memory/internal/redisstore/artifacts"
	"github.com/troupe-dev/troupe/services/memory/internal/redisstore/configs"
	"github.com/troupe-dev/troupe/services/memory/internal/redisstore/db"
	"github.com/troupe-dev/troupe/services/memory/internal/redisstore/erasure"
	"github.com/troupe-dev/troupe/services/memory/internal/redisstore/index"
	"github.com/troupe-dev/troupe/services/memory/internal/redisstore/journal"
	"github.com/troupe-dev/troupe/services/memory/internal/redisstore/outbox"
	"github.com/troupe-dev/troupe/services/memory/internal/redisstore/sessions"
	"github.com/troupe-dev/troupe/services/memory/internal/redisstore/state"
	"github.com/troupe-dev/troupe/services/memory/internal/redisstore/turns"
)

var _ memory.Store = (*Store)(nil)

// generationBits is the number of low bits of an epoch that count turns. The bits above hold the generation of the
// data.
const generationBits = 32

// Config has the address, the guarantees and the limits of a store.
type Config struct {
	URL      string // URL of Redis, in the form that redisconn.New accepts
	Security redisconn.Security
	// Durability is what an acknowledged write survives (empty means redisconn.D1). In D2 each write waits for a
	// replica. It fails if the replica does not confirm it in time.
	Durability redisconn.DurabilityClass
	// ReplicaTime is how long a replica may take to confirm a write (0 means 200 ms). It applies to durability
	// class D2.
	ReplicaTime time.Duration
	// MaxMessages and MaxBytes limit the size of a session (0 means session.MaxMessages and session.MaxBytes).
	MaxMessages, MaxBytes int64
	// Generation returns the generation of the data (nil means always 0). Epochs are at least generation · 2³², so
	// that data that lost writes cannot assign an epoch twice. It is called for each BeginTurn call, which fails
	// if Generation returns an error.
	Generation func() (int64, error)
	// KeepJournals is how long the journal of a step is kept after its commit, for Recording (0 means that it is
	// deleted).
	KeepJournals time.Duration
	// RequireIdentity makes Ping fail if Redis does not identify its process, which Store.Identity relies on.
	RequireIdentity bool
	// OnConnect is called with the Redis process that a new connection has reached, before the first use of the
	// connection (nil disables it). The process is empty if Redis refuses to identify itself. It is not called for a replica in a Cluster.
	OnConnect func(process string)
}

// Store is the MEMORY tier in Redis. It expects input within the limits of package memory, which the RPC server
// checks. It is safe for concurrent use. The caller must close it.
type Store struct {
	*turns.Turns
	*journal.Journal
	*sessions.Sessions
	*erasure.Eraser
	*state.State
	*artifacts.Artifacts
	*configs.Configs

	db              *db.DB
	durability      redisconn.DurabilityClass
	requireIdentity bool
}

// New returns a store. It connects to Redis on first use, and reconnects by itself.
func New(cfg Config) (*Store, error) {
	cfg.Durability = cmp.Or(cfg.Durability, redisconn.D1)
	link := redisconn.Config{URL: cfg.URL, Security: cfg.Security}
	if cfg.Durability == redisconn.D2 {
		link.Replicas, link.ReplicaTime = 1, cfg.ReplicaTime
	}
	if cfg.OnConnect != nil {
		link.OnConnect = newConnectHook(cfg.OnConnect)
	}
	conn, err := redisconn.New(link)
	if err != nil {
		return nil, err
	}
	return newStore(&db.DB{Conn: conn}, cfg), nil
}

// newStore creates the parts of a store and connects them with each other.
func newStore(d *db.DB, cfg Config) *Store {
	least := func() (int64, error) {
		if cfg.Generation == nil {
			return 0, nil
		}
		generation, err := cfg.Generation()
		return generation << generationBits, err
	}
	x, o, j := index.New(d), outbox.New(d), journal.New(d, cfg.KeepJournals)
	a := artifacts.New(d, o)
	e := erasure.New(d, x, o, j, a)
	return &Store{
		Turns: turns.New(d, x, o, j, turns.Config{
			MaxMessages:  cmp.Or(cfg.MaxMessages, session.MaxMessages),
			MaxBytes:     cmp.Or(cfg.MaxBytes, session.MaxBytes),
			KeepJournals: cfg.KeepJournals,
			LeastEpoch:   least,
		}),
		Journal:   j,
		Sessions:  sessions.New(d, x, j, e),
		Eraser:    e,
		State:     state.New(d, o),
		Artifacts: a,
		Configs:   configs.New(d, least),

		db: d, durability: cfg.Durability, requireIdentity: cfg.RequireIdentity,
	}
}

// Addr returns the address of Redis, without credentials.
func (s *Store) Addr() string { return s.db.Addr() }

// requiredCommands are the Redis commands that scripts and other calls use. deploy/redis/users.acl permits these
// to the user of the service, and the commands for connections, CheckDurability and replicas.
var requiredCommands = []string{
	"eval", "evalsha", "eval_ro", "evalsha_ro", "time", "del", "unlink", "exists", "pexpire", "pexpireat", "persist", "rename",
	"set", "getrange", "hget", "hmget", "hgetall", "hset", "hdel", "hexists", "hincrby", "hkeys", "hstrlen",
	"xadd", "xdel", "xlen", "xrange", "xrevrange", "xtrim", "zadd", "zrem", "zscore", "zrevrangebyscore", "zremrangebyrank", "zremrangebyscore",
}

// Ping returns nil if Redis accepts writes and permits every command that the service uses. If Redis replies with
// an error, Ping returns a *probe.NotServingError.
func (s *Store) Ping(ctx context.Context) error {
	commands := requiredCommands
	if s.durability == redisconn.D2 {
		commands = append(slices.Clip(commands), "wait")
	}
	if s.requireIdentity {
		commands = append(slices.Clip(commands), "info")
	}
	return s.db.CheckServing(ctx, redisconn.Permissions{Prefix: "m:", Commands: commands})
}

// CheckDurability returns nil if Redis is as durable as the store's configuration requires (guarantees, section 0.2). Its
// error names the missing setting, or wraps redisconn.ErrDurabilityUnknown if Redis does not report its settings.
func (s *Store) CheckDurability(ctx context.Context) error {
	return s.db.CheckDurability(ctx, s.durability)
}

// Close closes all connections. Calls in flight fail.
func (s *Store) Close() error { return s.db.Close() }
