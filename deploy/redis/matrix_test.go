package redis_test

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/troupe-dev/troupe/test/redistest"
)

// On a real Redis, each service can access only its own keys. Other users can run no command: an agent has a
// certificate but no password.
func TestUsers_AccessOnlyTheirOwnKeys(t *testing.T) {
	server := redistest.StartGuarded(t)
	own := map[string]string{"memory": "m:", "orchestrator": "o:"}
	keys := []string{"m:{default/s1}:meta", "m:store:0", "o:{default/t1}:rec", "o:open:01", "x", "M:x", ""}
	for user, prefix := range own {
		url := redistest.UserURL(user, server.Addr)
		for _, key := range keys {
			mine := len(key) > 2 && key[:2] == prefix
			for _, command := range [][]any{
				{"HSET", key, "field", "value"},
				{"HGETALL", key},
				{"XADD", key, "*", "field", "value"},
				{"EVAL", "return redis.call('HSET', KEYS[1], 'a', 'b')", 1, key},
				{"EVAL", "return redis.call('HSET', ARGV[1], 'a', 'b')", 1, prefix + "mine", key}, // the key is not declared
			} {
				require.Equal(t, mine, redistest.MayRun(t, url, command...), "%s %v", user, command)
			}
		}
	}
	for _, url := range []string{"redis://" + server.Addr, "redis://default:default@" + server.Addr, "redis://memory@" + server.Addr, redistest.UserURL("worker/a", server.Addr)} {
		for _, key := range keys {
			require.False(t, redistest.MayRun(t, url, "HGETALL", key), "%s %s", url, key)
		}
	}
}

// Only an administrator may run commands that affect more than single keys, such as FLUSHALL.
func TestUsers_HaveNoAdminCommands(t *testing.T) {
	server := redistest.StartGuarded(t)
	for _, user := range []string{"memory", "orchestrator"} {
		for _, command := range [][]any{
			{"CONFIG", "SET", "appendonly", "no"},
			{"CONFIG", "REWRITE"},
			{"FLUSHALL"},
			{"FLUSHDB"},
			{"KEYS", "*"},
			{"SCAN", 0},
			{"RANDOMKEY"},
			{"DBSIZE"},
			{"SELECT", 1},
			{"SWAPDB", 0, 1},
			{"MONITOR"},
			{"ACL", "WHOAMI"},
			{"ACL", "SETUSER", user, "allkeys"},
			{"MODULE", "LIST"},
			{"DEBUG", "JMAP"},
			{"SCRIPT", "FLUSH"},
			{"FUNCTION", "LIST"},
			{"REPLICAOF", "127.0.0.1", 1},
			{"CLUSTER", "RESET"},
			{"CLIENT", "LIST"},
			{"SUBSCRIBE", "x"},
			{"PUBLISH", "x", "y"},
			{"SAVE"},
			{"SHUTDOWN"},
			{"MIGRATE", "127.0.0.1", 1, "m:x", 0, 100},
			{"EVAL", "return redis.call('FLUSHALL')", 0},
			{"EVAL", "return redis.call('CONFIG', 'SET', 'save', '')", 0},
		} {
			require.False(t, redistest.MayRun(t, redistest.UserURL(user, server.Addr), command...), "%s %s", user, fmt.Sprint(command...))
		}
	}
}
