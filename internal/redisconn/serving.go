package redisconn

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/redis/go-redis/v9"

	"github.com/troupe-dev/troupe/internal/probe"
	"github.com/troupe-dev/troupe/pkg/failure"
)

// permissionScript returns the commands that the user may not use on a key. If the user may use all of them, the
// script unlinks the key. The key never exists, so nothing changes, but the script fails on a node that cannot
// write.
var permissionScript = redis.NewScript(`
local denied = {}
for _, command in ipairs(redis.acl_check_cmd and ARGV or {}) do -- not every server has it
  local known, may = pcall(redis.acl_check_cmd, command, KEYS[1], KEYS[1], KEYS[1])
  if not (known and may) then denied[#denied + 1] = command end
end
if #denied == 0 then redis.call('UNLINK', KEYS[1]) end
return denied
`)

// Permissions lists what a service must be permitted to do in Redis.
type Permissions struct {
	// Prefix is the prefix of the service's keys. Commands are the commands that it uses on them, besides those
	// for connecting. They must include UNLINK.
	Prefix   string
	Commands []string
}

// CheckServing returns nil if each node that should take writes is reachable, accepts writes now, and grants the
// user the permissions. It changes no data and needs one round trip to each node. An error reply of Redis becomes
// a *probe.NotServingError, which contains no secret.
func (c *Conn) CheckServing(ctx context.Context, needs Permissions) error {
	const op = "redis.Serves"
	ctx = context.WithValue(ctx, readOnlyKey{}, true)
	shards, err := c.Shards(ctx, needs.Prefix+"probe")
	if err != nil {
		return c.toNotServingError(op, needs, err)
	}
	for _, shard := range shards {
		denied, err := permissionScript.Run(ctx, shard.Node, []string{shard.Key}, toAny(needs.Commands)...).StringSlice()
		if err != nil {
			return c.toNotServingError(op, needs, err)
		}
		if len(denied) > 0 {
			slices.Sort(denied)
			return newNotPermittedError(needs, strings.Join(denied, ", "), failure.New(failure.Unknown, op,
				"the store does not permit the service what it needs"))
		}
	}
	return nil
}

// readOnlyKey marks the context of a command that changes nothing, so that no replica must confirm it.
type readOnlyKey struct{}

func toAny(all []string) []any {
	out := make([]any, len(all))
	for i, s := range all {
		out[i] = s
	}
	return out
}

// toNotServingError converts an error as Failure does. If Redis replied with an error, the result is a
// *probe.NotServingError with a reason that the readiness probe may show.
func (c *Conn) toNotServingError(op string, needs Permissions, err error) error {
	fault := c.Failure(op, err)
	if _, replied := errors.AsType[redis.Error](err); !replied {
		return fault
	}
	switch code, _, _ := strings.Cut(err.Error(), " "); {
	case code == "NOPERM":
		return newNotPermittedError(needs, "scripts", fault)
	case hasErrorPrefix(err, credentialReplies):
		return &probe.NotServingError{Reason: "does not accept the user and password of the service", Cause: fault}
	default:
		return &probe.NotServingError{Reason: "does not serve: " + code, Cause: fault}
	}
}

func newNotPermittedError(needs Permissions, what string, cause error) error {
	return &probe.NotServingError{
		Reason: fmt.Sprintf("does not permit the user of the service to use %s on keys %s*; grant what users.acl says", what, needs.Prefix),
		Cause:  cause,
	}
}
