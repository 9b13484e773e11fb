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
	D0 Class = "D0" // nothing
	D1 Class = "D1" // a crash of Redis and of its machine: every write is on disk
	D2 Class = "D2" // the loss of its machine: a replica has every write too
)

// The errors of CheckDurability wrap ErrDurabilityUnknown when Redis does not report its settings, and ErrNotDurable when it
// is less durable than required.
var (
	ErrDurabilityUnknown = errors.New("redis does not tell")
	ErrNotDurable        = errors.New("redis is not durable enough")
)

// minVersion is the oldest Redis that replicates the effects of scripts, and not the scripts.
const minVersion = 7

// setting is a setting that a class needs, and whether a value is sufficient.
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

// CheckDurability returns nil when every node that takes writes is as durable as the class requires; D0 requires the same as D1.
// Otherwise the error wraps ErrNotDurable and names the setting to change, or wraps ErrDurabilityUnknown, or says why Redis cannot be asked
// now (guarantees 0.2).
func (c *Conn) CheckDurability(ctx context.Context, class Class) error {
	return c.EachMaster(ctx, func(ctx context.Context, node redis.Cmdable) error {
		info, err := node.InfoMap(ctx, "server").Result()
		if err != nil {
			return c.unanswered(err, "its version")
		}
		version := info["Server"]["redis_version"]
		major, _, _ := strings.Cut(version, ".")
		if n, err := strconv.Atoi(major); err == nil && n < minVersion {
			return newNotDurableError("redis at %s is of version %s; run version %d or newer", c.addr, version, minVersion)
		}
		needed := settings[D1]
		if class == D2 {
			needed = slices.Concat(needed, settings[D2])
		}
		for _, s := range needed {
			got, err := node.ConfigGet(ctx, s.name).Result()
			if err != nil {
				return c.unanswered(err, "how it persists; assume that a crash of redis loses acknowledged turns")
			}
			if !s.fits(got[s.name]) {
				return newNotDurableError("redis at %s runs with %s %s: a crash of redis loses acknowledged turns; set %s %s",
					c.addr, s.name, cmp.Or(got[s.name], "unset"), s.name, s.want)
			}
		}
		return nil
	})
}

// unanswered returns the error for a question that Redis rejects, or cannot answer because it is away.
func (c *Conn) unanswered(cause error, what string) error {
	if _, refused := errors.AsType[redis.Error](cause); refused && !redis.IsLoadingError(cause) {
		return fmt.Errorf("%w: redis at %s does not say %s: %w", ErrDurabilityUnknown, c.addr, what, cause)
	}
	return c.Fault("redis.Durable", cause)
}

// notDurableError is an error that wraps ErrNotDurable without its text.
type notDurableError struct{ error }

func (notDurableError) Unwrap() error { return ErrNotDurable }

func newNotDurableError(format string, args ...any) error {
	return notDurableError{fmt.Errorf(format, args...)}
}
