// Package redisstore keeps the MEMORY tier in Redis 7, Valkey or a Redis Cluster: one Lua
// script per write, so that each is atomic and fenced by the store itself.
//
// All keys of a session share the hash tag {tenant/session}, and so one Cluster slot:
//
//	m:{T/S}:meta         hash: schema, user, state, epoch, turns, seq, count and bytes of the
//	                     messages it holds (conversation.Size), summarized and summary, rev, md:<label>,
//	                     created, active, last_trace; open, open_trace and deadline of the
//	                     open turn; waiting, the turn whose calls wait, as <turn>:<step>;
//	                     art_bytes, arts. Of a deleted session: epoch, deleted, and user as
//	                     long as something of it is left to remove
//	m:{T/S}:log          stream, ids <sequence>-0: m the number of a turn, a space, the
//	                     time, a space, and a troupe.v1.Message
//	m:{T/S}:turn:<turn>  hash: trace, fingerprint, number, outcome, epoch, attempt, first,
//	                     seq, steps, failure; first is the last message when it began, the
//	                     user's if it has one; holder, the trace that began it or took it
//	                     over last; sha<n> and result<n> of each committed step; kept, whether
//	                     its last step, whose calls wait, had a journal; continues, answers (a
//	                     troupe.v1.Answers) and inherits, the step that goes on, of a turn in the
//	                     place of one that waited; jrnl<n> of each step that had a journal; origin, the first of
//	                     the turns that failed and whose place it took; sha<n> of a step that it began
//	                     with is "inherited". Expires 7 days after the turn was closed
//	m:{T/S}:turns        zset of the ids of its turns by the time they began, for two retentions
//	m:{T/S}:jrnl:<turn>:<step>  hash of a running step: <number>:i and <number>:d, each a
//	                     troupe.v1.JournalEntry, and bytes. Expires a day after the last entry;
//	                     of a turn that failed a day after that, and Config.KeepJournals behind any
//	                     step; of a step whose calls wait with its turn; and not at all while the turn
//	                     is open that goes on with the step, and has its key renamed
//	m:{T/S}:out          hash of changes that are still to be made elsewhere: <turn>/<step>
//	                     of a commit and call:<id> of a call, a troupe.v1.UpdateStateRequest
//	                     of app: or user: state; put:<id> and drop:<id>, a troupe.v1.Artifact
//	                     of the user
//	m:{T/S}:state        hash of a scope: rev, bytes, keys, v:<key>
//	m:{T/S}:reqs         zset of the latest 1,000 request ids of the scope
//	m:{T/S}:arts         hash: v:<name>\x00<version> digest, size, time and a
//	                     troupe.v1.Artifact; n:<name> the last version that there was
//	m:{T/S}:blob:<sha>-<size>  hash of a content: stored, hash (of the bytes so far), refs,
//	                     until; and its bytes in m:{T/S}:blob:<sha>-<size>:<n>, 512 KiB each
//	m:{T/S}:staged       zset of <sha>-<size> of contents that no artifact has, by the time
//	                     until which they are kept
//
// The configuration of an agent is a hash, m:config:{agent}: version, protocol of who wrote it
// last, removed (the last version that removed a key), v:<key>, and n:<key> the version that set it.
//
// Elsewhere are the scopes that sessions share, m:{T/u/U} and m:{T} with :state and :reqs,
// and :settled, the changes that sessions left for them; the artifacts of a user, m:{T/u/U} with
// :arts, which also has how many there are, arts, and art_bytes, :blob and :staged; and where sessions are found,
// m:idx:{T} and m:{T/u/U}:sessions, zsets of session ids by the time they were made; m:tenants,
// a zset, names each T. m:store,
// a hash, is about all of it: beat counts up while somebody looks after the data, and
// generation was given to those of identity. In a Cluster each master has one, m:store:{<n>}.
//
// Times are milliseconds of Redis's own clock; an empty outcome is that of an open turn.
//
// What an operation costs, once the scripts are in Redis's cache; in class D2 a write also
// waits for a replica:
//
//	                 round trips  durable writes
//	BeginTurn        1            1   (0 when the turn is known and not taken over)
//	 …the first      2            2   (it enters the session in the indexes)
//	 …that evicts    5            1
//	 …behind a wait  2            1   (it goes on with the calls, or leaves them)
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
//	LoadHistory      1            0
//	GetSession       1            0   (2 trips when calls wait)
//	ListSessions     2            0
//	UpdateSession    1            1
//	CompactSession   3            1   (+1 trip for each 100 messages behind the first,
//	                                  and one when calls wait; +4 and +1 when journals are kept)
//	ClearSession     4            1   (+2 trips when journals are kept)
//	DeleteSession    11           6   (+3 trips for each 500 turns behind the first)
//	SearchMemory     1 + 1 for each 100 messages of a session (and 1 more for a worker)
//	GetState         2            0   (1 without a user)
//	UpdateState      1            1   (2 and 1 of app: and user:; 4 and 4 in a turn's name)
//	GetConfig        1            0
//	PutConfig        1            1   (0 when all of it is there already)
//	StageArtifact    1            1
//	AppendArtifact   2            1   (for each piece)
//	PutArtifact      1            1
//	 …under user:    7            5   (+2 and +1 for each piece; 7 and 4 when the user has it)
//	GetArtifact      1            0   (2 trips under user:)
//	ReadArtifact     1            0   (for each piece; 2 trips of what a user has)
//	ListArtifacts    2            0   (1 without a user)
//	DeleteArtifact   2            1   (6 and 4 under user:)
//
// An acknowledged write is on disk only if Redis runs with appendonly yes and appendfsync
// always; Durable tells.
package redisstore

import (
	"cmp"
	"context"
	"slices"
	"time"

	"github.com/troupe-dev/troupe/internal/redisconn"
	"github.com/troupe-dev/troupe/pkg/memory"
	"github.com/troupe-dev/troupe/pkg/session"
)

var _ memory.Store = (*Store)(nil)

// schema is the layout of the keys. A session with another is refused as unreadable.
const schema = "3"

// retention is how long a closed turn answers repeated requests, and journalKept how long a
// journal waits for a successor of the step's worker.
const (
	retention   = memory.Retention
	journalKept = 24 * time.Hour
)

// Config is where the store is and what it allows.
type Config struct {
	URL      string // as redisconn.New takes it
	Security redisconn.Security
	// Durability is what an acknowledged write survives; empty is redisconn.D1. In D2 each
	// write waits for a replica, and fails when that has not got it in time.
	Durability redisconn.Class
	// ReplicaTime is how long a replica may take to have a write; 0: 200 ms.
	ReplicaTime time.Duration
	// MaxMessages and MaxBytes of a session; 0 means session.MaxMessages, session.MaxBytes.
	MaxMessages, MaxBytes int64
	// Generation of the data: epochs are at least generation · 2³², so that data that went
	// back in time cannot mint an epoch twice. It is asked before each turn; its error
	// refuses the turn. Nil is always 0.
	Generation func() (int64, error)
	// KeepJournals is how long the journal of a step is kept behind it, for Recording; 0: not at
	// all.
	KeepJournals time.Duration
	// Identified is whether Redis must say which process it is, as Identity asks.
	Identified bool
	// Met, if set, is told which process of Redis a new connection reaches, before it is
	// used; empty when that does not say.
	Met func(process string)
}

// Store is the MEMORY tier over one Redis. It takes the bounds of package memory for
// granted: the RPC edge checks them. Safe for concurrent use; Close it.
type Store struct {
	redis *redisconn.Conn
	cfg   Config
}

// New returns a store. It connects when first used, and reconnects by itself.
func New(cfg Config) (*Store, error) {
	cfg.Durability = cmp.Or(cfg.Durability, redisconn.D1)
	link := redisconn.Config{URL: cfg.URL, Security: cfg.Security}
	if cfg.Durability == redisconn.D2 {
		link.Replicas, link.ReplicaTime = 1, cfg.ReplicaTime
	}
	if cfg.Met != nil {
		link.Met = introduced(cfg.Met)
	}
	conn, err := redisconn.New(link)
	if err != nil {
		return nil, err
	}
	cfg.MaxMessages = cmp.Or(cfg.MaxMessages, session.MaxMessages)
	cfg.MaxBytes = cmp.Or(cfg.MaxBytes, session.MaxBytes)
	if cfg.Generation == nil {
		cfg.Generation = func() (int64, error) { return 0, nil }
	}
	return &Store{redis: conn, cfg: cfg}, nil
}

// Addr is where Redis is, without credentials.
func (s *Store) Addr() string { return s.redis.Addr() }

// needs are the commands of the scripts and of what is beside them. Those of a user in
// deploy/redis/users.acl are these, and what connections, Durable and replicas want.
var needs = []string{
	"eval", "evalsha", "eval_ro", "evalsha_ro", "time", "del", "unlink", "exists", "pexpire", "pexpireat", "persist", "rename",
	"set", "getrange", "hget", "hmget", "hgetall", "hset", "hdel", "hexists", "hincrby", "hkeys", "hstrlen",
	"xadd", "xrange", "xrevrange", "xtrim", "zadd", "zrem", "zscore", "zrevrangebyscore", "zremrangebyrank", "zremrangebyscore",
}

// Ping returns nil when Redis takes writes, and lets the service do all that it does. What Redis
// says is a *probe.RefusedError.
func (s *Store) Ping(ctx context.Context) error {
	commands := needs
	if s.cfg.Durability == redisconn.D2 {
		commands = append(slices.Clip(commands), "wait")
	}
	if s.cfg.Identified {
		commands = append(slices.Clip(commands), "info")
	}
	return s.redis.Serves(ctx, redisconn.Needs{Prefix: "m:", Commands: commands})
}

// Durable returns nil when Redis is as durable as the store is meant to be, and else an
// error that names the setting that is missing, or wraps redisconn.ErrUntold when Redis does
// not say (guarantees 0.2).
func (s *Store) Durable(ctx context.Context) error {
	return s.redis.Durable(ctx, s.cfg.Durability)
}

// Close ends all connections. Calls in flight fail.
func (s *Store) Close() error { return s.redis.Close() }
