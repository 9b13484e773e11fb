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

// allowed replies which commands the user may not use on a key. Where he may use all, it removes
// the key, which is never there: that changes nothing, and fails where nothing can be written.
var allowed = redis.NewScript(`
local refused = {}
for _, command in ipairs(redis.acl_check_cmd and ARGV or {}) do -- not all that run scripts have it
  local known, may = pcall(redis.acl_check_cmd, command, KEYS[1], KEYS[1], KEYS[1])
  if not (known and may) then refused[#refused + 1] = command end
end
if #refused == 0 then redis.call('UNLINK', KEYS[1]) end
return refused
`)

// Needs is what a service does with a Redis.
type Needs struct {
	// Prefix is that of its keys, and Commands what it uses on them, beside what a client needs
	// to connect. UNLINK is one of them.
	Prefix   string
	Commands []string
}

// Serves returns nil when each node that takes writes is there, takes them now, and lets the user
// of the connection do what is needed. It writes nothing, and takes one round trip to each. What Redis
// says is a *probe.RefusedError, which quotes no secret.
func (c *Conn) Serves(ctx context.Context, needs Needs) error {
	const op = "redis.Serves"
	ctx = context.WithValue(ctx, unchanging{}, true)
	shares, err := c.Shares(ctx, needs.Prefix+"probe")
	if err != nil {
		return c.refusal(op, needs, err)
	}
	for _, share := range shares {
		refused, err := allowed.Run(ctx, share.Node, []string{share.Key}, anys(needs.Commands)...).StringSlice()
		if err != nil {
			return c.refusal(op, needs, err)
		}
		if len(refused) > 0 {
			slices.Sort(refused)
			return unpermitted(needs, strings.Join(refused, ", "), failure.New(failure.Unknown, op, "the store does not let the service do what it must"))
		}
	}
	return nil
}

// unchanging marks the context of what changes nothing, whatever its command: no replica has to
// confirm it.
type unchanging struct{}

func anys(all []string) []any {
	out := make([]any, len(all))
	for i, s := range all {
		out[i] = s
	}
	return out
}

// refusal is Fault, with what a board may say of Redis' reply.
func (c *Conn) refusal(op string, needs Needs, err error) error {
	fault := c.Fault(op, err)
	if _, replied := errors.AsType[redis.Error](err); !replied {
		return fault
	}
	switch code, _, _ := strings.Cut(err.Error(), " "); {
	case code == "NOPERM":
		return unpermitted(needs, "scripts", fault)
	case begins(err, credentials):
		return &probe.NotServingError{Reason: "does not accept the user of the service and his password", Cause: fault}
	default:
		return &probe.NotServingError{Reason: "does not serve: " + code, Cause: fault}
	}
}

func unpermitted(needs Needs, what string, cause error) error {
	return &probe.NotServingError{
		Reason: fmt.Sprintf("does not let the user of the service use %s on keys %s*; give him what users.acl says", what, needs.Prefix),
		Cause:  cause,
	}
}
