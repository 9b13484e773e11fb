package ownership_test

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/troupe-dev/troupe/pkg/failure"
	"github.com/troupe-dev/troupe/test/ownership"
	"github.com/troupe-dev/troupe/test/redistest"
)

// byUser are accesses over connections to Redis, with the user of each actor: services have one each, workers
// have none.
var byUser = map[ownership.Cell][]trial{
	{Actor: ownership.Owner, Tier: ownership.AgentTier, Verb: ownership.Persist}: {runs(ownership.Owner, "m:{default/"+session+"}:state",
		setting("v:_kept"))},
	{Actor: ownership.Owner, Tier: ownership.MemoryTier, Verb: ownership.Write}:       rewrites(ownership.Owner),
	{Actor: ownership.Owner, Tier: ownership.OrchestratorTier, Verb: ownership.Write}: retells(ownership.Owner),

	{Actor: ownership.Other, Tier: ownership.MemoryTier, Verb: ownership.Write}: rewrites(ownership.Other),
	{Actor: ownership.Other, Tier: ownership.MemoryTier, Verb: ownership.Beyond}: {
		runs(ownership.Other, "m:{default/of-ann}:log", getting("XRANGE", "-", "+")),
		runs(ownership.Other, "m:{default/"+session+"}:state", getting("HGETALL")),
	},
	{Actor: ownership.Other, Tier: ownership.OrchestratorTier, Verb: ownership.Write}: retells(ownership.Other),
	{Actor: ownership.Other, Tier: ownership.OrchestratorTier, Verb: ownership.Beyond}: {
		runs(ownership.Other, "o:{default/*}:rec", getting("HGETALL")),
		runs(ownership.Other, "o:{default/*}:ev", getting("XRANGE", "-", "+")),
	},
	{Actor: ownership.Other, Tier: ownership.SharedTier, Verb: ownership.Write}: {reconfigures(ownership.Other)},

	{Actor: ownership.Memory, Tier: ownership.OrchestratorTier, Verb: ownership.Write}: retells(ownership.Memory),

	{Actor: ownership.Orchestrator, Tier: ownership.MemoryTier, Verb: ownership.Write}: rewrites(ownership.Orchestrator),
	{Actor: ownership.Orchestrator, Tier: ownership.SharedTier, Verb: ownership.Write}: {reconfigures(ownership.Orchestrator)},
}

// commands for a key.
type commands func(key string) [][]any

// setting changes a field, adds to a key and removes it, directly and in a script.
func setting(field string) commands {
	return func(key string) [][]any {
		return [][]any{
			{"HSET", key, field, `"theirs"`},
			{"HDEL", key, field},
			{"EVAL", "return redis.call('HSET', KEYS[1], ARGV[1], ARGV[2])", 1, key, field, `"theirs"`},
			{"UNLINK", key},
		}
	}
}

func adding(key string) [][]any {
	return [][]any{{"XADD", key, "*", "m", "theirs"}, {"UNLINK", key}}
}

func getting(name string, args ...any) commands {
	return func(key string) [][]any { return [][]any{append([]any{name, key}, args...)} }
}

func rewrites(as ownership.Actor) []trial {
	return []trial{
		runs(as, "m:{default/"+session+"}:state", setting("v:mood")), runs(as, "m:{default/of-ann}:meta", setting("epoch")),
		runs(as, "m:{default/of-ann}:log", adding),
	}
}

func retells(as ownership.Actor) []trial {
	return []trial{runs(as, "o:{default/*}:rec", setting("owner")), runs(as, "o:{default/*}:ev", adding)}
}

func reconfigures(as ownership.Actor) trial {
	return runs(as, "m:config:{"+scribe+"}", setting("v:tone"))
}

// runs commands on the first key that fits a pattern, which is there. Without its users, a Redis runs them.
func runs(as ownership.Actor, pattern string, on commands) trial {
	return trial{
		try: func(t *testing.T, m *mesh) error {
			t.Helper()
			key := m.key(t, pattern)
			for _, url := range users(m.Stores.Redis.Addr, as) {
				for _, command := range on(key) {
					require.False(t, redistest.May(t, url, command...), "%s: %v", url, command)
				}
			}
			return failure.New(failure.PolicySecurity, "test", "Redis rejects that for every user")
		},
		without: func(t *testing.T, m *mesh) error {
			t.Helper()
			for _, command := range on(m.key(t, pattern)) {
				if !redistest.May(t, users(m.openRedis.Addr, as)[0], command...) {
					return fmt.Errorf("Redis refuses %v", command)
				}
			}
			return nil
		},
	}
}

// users returns the URLs that an actor has for a Redis, and those that it could guess.
func users(addr string, as ownership.Actor) []string {
	if as == ownership.Memory || as == ownership.Orchestrator {
		return []string{redistest.URL(ids[as].User(), addr)}
	}
	return []string{
		"redis://" + addr, redistest.URL("default", addr), redistest.URL(ids[as].User(), addr), "redis://memory@" + addr,
		"redis://orchestrator@" + addr,
	}
}
