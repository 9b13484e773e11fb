package ownership_test

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/troupe-dev/troupe/pkg/failure"
	"github.com/troupe-dev/troupe/test/ownership"
	"github.com/troupe-dev/troupe/test/redistest"
)

// redisTrials are forbidden accesses to Redis with the user of each actor. Each service has one user; workers
// have none.
var redisTrials = map[ownership.Cell][]trial{
	{Actor: ownership.Owner, Tier: ownership.AgentTier, Verb: ownership.Persist}: {redisTrial(ownership.Owner, "m:{default/"+sessionID+"}:state",
		hashWrites("v:_kept"))},
	{Actor: ownership.Owner, Tier: ownership.MemoryTier, Verb: ownership.Write}:       sessionWriteTrials(ownership.Owner),
	{Actor: ownership.Owner, Tier: ownership.OrchestratorTier, Verb: ownership.Write}: traceWriteTrials(ownership.Owner),

	{Actor: ownership.Other, Tier: ownership.MemoryTier, Verb: ownership.Write}: sessionWriteTrials(ownership.Other),
	{Actor: ownership.Other, Tier: ownership.MemoryTier, Verb: ownership.ReadBeyondScope}: {
		redisTrial(ownership.Other, "m:{default/of-ann}:log", readCommand("XRANGE", "-", "+")),
		redisTrial(ownership.Other, "m:{default/"+sessionID+"}:state", readCommand("HGETALL")),
	},
	{Actor: ownership.Other, Tier: ownership.OrchestratorTier, Verb: ownership.Write}: traceWriteTrials(ownership.Other),
	{Actor: ownership.Other, Tier: ownership.OrchestratorTier, Verb: ownership.ReadBeyondScope}: {
		redisTrial(ownership.Other, "o:{default/*}:rec", readCommand("HGETALL")),
		redisTrial(ownership.Other, "o:{default/*}:ev", readCommand("XRANGE", "-", "+")),
	},
	{Actor: ownership.Other, Tier: ownership.SharedTier, Verb: ownership.Write}: {configWriteTrial(ownership.Other)},

	{Actor: ownership.Memory, Tier: ownership.OrchestratorTier, Verb: ownership.Write}: traceWriteTrials(ownership.Memory),

	{Actor: ownership.Orchestrator, Tier: ownership.MemoryTier, Verb: ownership.Write}: sessionWriteTrials(ownership.Orchestrator),
	{Actor: ownership.Orchestrator, Tier: ownership.SharedTier, Verb: ownership.Write}: {configWriteTrial(ownership.Orchestrator)},
}

// commandsForKey returns the Redis commands to try on a key.
type commandsForKey func(key string) [][]any

// hashWrites returns commands that write a field of a hash, directly and in a script, and that remove the
// field or the key.
func hashWrites(field string) commandsForKey {
	return func(key string) [][]any {
		return [][]any{
			{"HSET", key, field, `"theirs"`},
			{"HDEL", key, field},
			{"EVAL", "return redis.call('HSET', KEYS[1], ARGV[1], ARGV[2])", 1, key, field, `"theirs"`},
			{"UNLINK", key},
		}
	}
}

func streamWrites(key string) [][]any {
	return [][]any{{"XADD", key, "*", "m", "theirs"}, {"UNLINK", key}}
}

func readCommand(name string, args ...any) commandsForKey {
	return func(key string) [][]any { return [][]any{append([]any{name, key}, args...)} }
}

func sessionWriteTrials(as ownership.Actor) []trial {
	return []trial{
		redisTrial(as, "m:{default/"+sessionID+"}:state", hashWrites("v:mood")), redisTrial(as, "m:{default/of-ann}:meta", hashWrites("epoch")),
		redisTrial(as, "m:{default/of-ann}:log", streamWrites),
	}
}

func traceWriteTrials(as ownership.Actor) []trial {
	return []trial{redisTrial(as, "o:{default/*}:rec", hashWrites("owner")), redisTrial(as, "o:{default/*}:ev", streamWrites)}
}

func configWriteTrial(as ownership.Actor) trial {
	return redisTrial(as, "m:config:{"+ownerAgent+"}", hashWrites("v:tone"))
}

// redisTrial returns a trial that runs commands on the first key that matches the pattern. The guarded Redis must deny
// them. The unguarded one, which has no ACL, must run them.
func redisTrial(as ownership.Actor, pattern string, on commandsForKey) trial {
	return trial{
		tryForbidden: func(t *testing.T, m *mesh) error {
			t.Helper()
			key := m.findKey(t, pattern)
			for _, url := range redisURLs(m.Stores.Redis.Addr, as) {
				for _, command := range on(key) {
					require.False(t, redistest.MayRun(t, url, command...), "%s: %v", url, command)
				}
			}
			return failure.New(failure.PolicySecurity, "test", "Redis rejects that for every user")
		},
		tryUnguarded: func(t *testing.T, m *mesh) error {
			t.Helper()
			for _, command := range on(m.findKey(t, pattern)) {
				if !redistest.MayRun(t, redisURLs(m.unguardedRedis.Addr, as)[0], command...) {
					return fmt.Errorf("Redis rejects %v", command)
				}
			}
			return nil
		},
	}
}

// redisURLs returns the Redis URLs that an actor knows or could guess.
func redisURLs(addr string, as ownership.Actor) []string {
	if as == ownership.Memory || as == ownership.Orchestrator {
		return []string{redistest.UserURL(identities[as].EtcdUser(), addr)}
	}
	return []string{
		"redis://" + addr, redistest.UserURL("default", addr), redistest.UserURL(identities[as].EtcdUser(), addr), "redis://memory@" + addr,
		"redis://orchestrator@" + addr,
	}
}
