package redisconn

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/redis/go-redis/v9"
)

// Class is what an acknowledged write survives (guarantees 2.5).
type Class string

// The classes.
const (
	D0 Class = "D0" // nothing is promised
	D1 Class = "D1" // a crash of Redis and of its machine: every write is on its disk
	D2 Class = "D2" // the loss of its machine: a replica has every write too
)

// What the errors of Durable wrap: ErrUntold when Redis refuses to say how it runs, and
// ErrWeak when it falls short.
var (
	ErrUntold = errors.New("redis does not tell")
	ErrWeak   = errors.New("redis is not durable enough")
)

// minVersion is the oldest Redis whose scripts are replicated as what they did.
const minVersion = 7

// setting is one that a class needs, and whether a value of it will do.
type setting struct {
	name, want string
	fits       func(string) bool
}

func exactly(name, want string) setting {
	return setting{name, want, func(got string) bool { return got == want }}
}

var settings = map[Class][]setting{
	D1: {
		exactly("appendonly", "yes"),
		exactly("appendfsync", "always"),
		exactly("no-appendfsync-on-rewrite", "no"),
		exactly("maxmemory-policy", "noeviction"),
	},
	D2: {{"min-replicas-to-write", "1", func(got string) bool {
		n, err := strconv.Atoi(got)
		return err == nil && n >= 1
	}}},
}

// Durable returns nil when every node that takes writes is as durable as the class asks; D0
// asks as D1 does. Else the error wraps ErrWeak and names the setting to change, or wraps
// ErrUntold, or says why Redis cannot be asked now (guarantees 0.2).
func (c *Conn) Durable(ctx context.Context, class Class) error {
	return c.EachMaster(ctx, func(ctx context.Context, node redis.Cmdable) error {
		info, err := node.InfoMap(ctx, "server").Result()
		if err != nil {
			return c.unasked(err, "its version")
		}
		version := info["Server"]["redis_version"]
		major, _, _ := strings.Cut(version, ".")
		if n, err := strconv.Atoi(major); err == nil && n < minVersion {
			return weak("redis at %s is of version %s; run version %d or newer", c.addr, version, minVersion)
		}
		needed := settings[D1]
		if class == D2 {
			needed = slices.Concat(needed, settings[D2])
		}
		for _, s := range needed {
			got, err := node.ConfigGet(ctx, s.name).Result()
			if err != nil {
				return c.unasked(err, "how it persists; take it that a crash of redis loses turns that were acknowledged")
			}
			if !s.fits(got[s.name]) {
				return weak("redis at %s runs with %s %s: a crash of redis loses turns that were acknowledged; set %s %s",
					c.addr, s.name, cmp.Or(got[s.name], "unset"), s.name, s.want)
			}
		}
		return nil
	})
}

// unasked is why Redis does not say something: it refuses, or is away.
func (c *Conn) unasked(cause error, what string) error {
	if _, refused := errors.AsType[redis.Error](cause); refused && !redis.IsLoadingError(cause) {
		return fmt.Errorf("%w: redis at %s does not say %s: %w", ErrUntold, c.addr, what, cause)
	}
	return c.Fault("redis.Durable", cause)
}

// weakness is an error that is ErrWeak and does not say so.
type weakness struct{ error }

func (weakness) Unwrap() error { return ErrWeak }

func weak(format string, args ...any) error { return weakness{fmt.Errorf(format, args...)} }
