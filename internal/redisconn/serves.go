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

// permissionScript replies which commands the user may not use on a key. If it may use all, the script removes the key, which never
// exists: that changes nothing, and fails where nothing can be written.
var permissionScript = redis.NewScript(`
local refused = {}
for _, command in ipairs(redis.acl_check_cmd and ARGV or {}) do -- not every server has it
  local known, may = pcall(redis.acl_check_cmd, command, KEYS[1], KEYS[1], KEYS[1])
  if not (known and may) then refused[#refused + 1] = command end
end
if #refused == 0 then redis.call('UNLINK', KEYS[1]) end
return refused
`)

// Needs are the permissions that a service needs in Redis.
type Needs struct {
	// Prefix begins its keys. Commands are used on them, besides what a client needs to connect. UNLINK is one of
	// them.
	Prefix   string
	Commands []string
}

// CheckServing returns nil when each node that should take writes is reachable, takes them now, and permits the user of the
// connection what is needed. It writes nothing, and takes one round trip to each node. An error that Redis replies is a
// *probe.NotServingError, which quotes no secret.
func (c *Conn) CheckServing(ctx context.Context, needs Needs) error {
	const op = "redis.Serves"
	ctx = context.WithValue(ctx, readOnlyKey{}, true)
	shares, err := c.Shards(ctx, needs.Prefix+"probe")
	if err != nil {
		return c.refusal(op, needs, err)
	}
	for _, share := range shares {
		refused, err := permissionScript.Run(ctx, share.Node, []string{share.Key}, toAny(needs.Commands)...).StringSlice()
		if err != nil {
			return c.refusal(op, needs, err)
		}
		if len(refused) > 0 {
			slices.Sort(refused)
			return unpermitted(needs, strings.Join(refused, ", "), failure.New(failure.Unknown, op, "the store does not permit the service what it needs"))
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

// refusal is Fault, with what the readiness probe may say about the reply of Redis.
func (c *Conn) refusal(op string, needs Needs, err error) error {
	fault := c.Fault(op, err)
	if _, replied := errors.AsType[redis.Error](err); !replied {
		return fault
	}
	switch code, _, _ := strings.Cut(err.Error(), " "); {
	case code == "NOPERM":
		return unpermitted(needs, "scripts", fault)
	case hasPrefix(err, credentialReplies):
		return &probe.NotServingError{Reason: "does not accept the user and password of the service", Cause: fault}
	default:
		return &probe.NotServingError{Reason: "does not serve: " + code, Cause: fault}
	}
}

func unpermitted(needs Needs, what string, cause error) error {
	return &probe.NotServingError{
		Reason: fmt.Sprintf("does not permit the user of the service to use %s on keys %s*; grant what users.acl says", what, needs.Prefix),
		Cause:  cause,
	}
}
