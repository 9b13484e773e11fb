package db

import (
	"context"
	_ "embed"
	"fmt"
	"maps"
	"strings"

	"github.com/redis/go-redis/v9"

	"github.com/troupe-dev/troupe/internal/redisconn"
	"github.com/troupe-dev/troupe/pkg/conversation"
	"github.com/troupe-dev/troupe/pkg/session"
)

// Schema is the version of the key layout. A session with another version is rejected as unreadable.
const Schema = "3"

//go:embed scripts/prelude.lua
var preludeSource string

// TurnSource is the Lua source in front of every script that acts for a turn. It defines check_turn,
// check_epoch, append and gravest, which keeps the most serious source of untrusted text.
//
//go:embed scripts/turn.lua
var TurnSource string

// scripts has all scripts of the store by name. It is written only during package initialization.
var scripts = map[string]*redis.Script{}

// Register creates a script from the prelude and the given sources, and registers it under name. It must be called
// during package initialization, once for each name.
func Register(name string, sources ...string) *redis.Script {
	if scripts[name] != nil {
		panic(fmt.Sprintf("db: two scripts are named %q", name)) //nolint:forbidigo // package initialization has no caller for an error
	}
	constants := "local schema, party = '" + Schema + "', '" + conversation.PartyPrefix + "'\n"
	scripts[name] = redis.NewScript(constants + preludeSource + strings.Join(sources, ""))
	return scripts[name]
}

// Scripts returns all registered scripts by name. A test can load them in advance or detect when one of them runs.
func Scripts() map[string]*redis.Script { return maps.Clone(scripts) }

// DB is the connection of a store. It also runs the store's scripts. It is safe for concurrent use.
type DB struct {
	*redisconn.Conn
}

// RunScript runs a script. It takes one round trip, unless the script must first be sent to Redis. A reply that
// concerns every caller of the session, such as deleted, becomes an error. The caller of RunScript handles all
// other replies.
func (d *DB) RunScript(ctx context.Context, op string, ref session.Ref, script *redis.Script, keys []string, args ...any) (Reply, error) {
	r, err := script.Run(ctx, d, keys, args...).Slice()
	if err != nil {
		return nil, d.Failure(op, err)
	}
	return r, checkSessionReply(op, ref, r)
}

// RunReadOnlyScript is like RunScript, for a script that only reads.
func (d *DB) RunReadOnlyScript(ctx context.Context, op string, ref session.Ref, script *redis.Script, keys []string, args ...any) (Reply, error) {
	r, err := script.RunRO(ctx, d, keys, args...).Slice()
	if err != nil {
		return nil, d.Failure(op, err)
	}
	return r, checkSessionReply(op, ref, r)
}
