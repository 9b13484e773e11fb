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

// DurabilityClass says what an acknowledged write survives (guarantees, section 2.5).
type DurabilityClass string

// The classes.
const (
	D0 DurabilityClass = "D0" // may survive nothing: the operator accepts that acknowledged writes are lost
	D1 DurabilityClass = "D1" // survives a crash of Redis and of its machine: every write is on disk
	D2 DurabilityClass = "D2" // survives the loss of its machine: a replica has every write too
)

// An error of CheckDurability that wraps ErrDurabilityUnknown says what Redis does not report. One that wraps
// ErrNotDurable names the setting to change.
var (
	ErrDurabilityUnknown = errors.New("redis does not report its settings")
	ErrNotDurable        = errors.New("redis is not durable enough")
)

// minVersion is the oldest supported version of Redis. Earlier versions replicate scripts instead of their
// effects.
const minVersion = 7

// requiredSetting is a Redis setting that a durability class requires. suffices reports whether a value is good
// enough.
type requiredSetting struct {
	name, want string
	suffices   func(string) bool
}

func exactSetting(name, want string) requiredSetting {
	return requiredSetting{name, want, func(got string) bool { return got == want }}
}

var requiredSettings = map[DurabilityClass][]requiredSetting{
	D1: {
		exactSetting("appendonly", "yes"),
		exactSetting("appendfsync", "always"),
		exactSetting("no-appendfsync-on-rewrite", "no"),
		exactSetting("maxmemory-policy", "noeviction"),
	},
	D2: {{"min-replicas-to-write", "1", func(got string) bool {
		n, err := strconv.Atoi(got)
		return err == nil && n >= 1
	}}},
}

// CheckDurability returns nil if every node that takes writes is as durable as the class requires. For D0 it checks the
// settings of D1, so that the caller can warn about what may be lost. An error that wraps ErrNotDurable names the setting
// to change. One that wraps ErrDurabilityUnknown says what Redis does not report. Other errors say why Redis cannot be
// asked now (guarantees, section 0.2).
func (c *Conn) CheckDurability(ctx context.Context, class DurabilityClass) error {
	return c.EachMaster(ctx, func(ctx context.Context, node redis.Cmdable) error {
		info, err := node.InfoMap(ctx, "server").Result()
		if err != nil {
			return c.unknownDurabilityError(err, "its version")
		}
		version := info["Server"]["redis_version"]
		major, _, _ := strings.Cut(version, ".")
		if n, err := strconv.Atoi(major); err == nil && n < minVersion {
			return newNotDurableError("redis at %s is of version %s; run version %d or newer", c.addr, version, minVersion)
		}
		needed := requiredSettings[D1]
		if class == D2 {
			needed = slices.Concat(needed, requiredSettings[D2])
		}
		for _, s := range needed {
			got, err := node.ConfigGet(ctx, s.name).Result()
			if err != nil {
				return c.unknownDurabilityError(err, "how it persists; assume that a crash of redis loses acknowledged turns")
			}
			if !s.suffices(got[s.name]) {
				return newNotDurableError("redis at %s runs with %s %s: a crash of redis loses acknowledged turns; set %s %s",
					c.addr, s.name, cmp.Or(got[s.name], "unset"), s.name, s.want)
			}
		}
		return nil
	})
}

// unknownDurabilityError returns the error for a failed query of Redis. It wraps ErrDurabilityUnknown if Redis
// rejected the query, and otherwise says that Redis is unavailable.
func (c *Conn) unknownDurabilityError(cause error, what string) error {
	if _, rejected := errors.AsType[redis.Error](cause); rejected && !redis.IsLoadingError(cause) {
		return fmt.Errorf("%w: redis at %s does not say %s: %w", ErrDurabilityUnknown, c.addr, what, cause)
	}
	return c.Failure("redis.Durable", cause)
}

// notDurableError wraps ErrNotDurable and has a message of its own.
type notDurableError struct{ error }

func (notDurableError) Unwrap() error { return ErrNotDurable }

func newNotDurableError(format string, args ...any) error {
	return notDurableError{fmt.Errorf(format, args...)}
}
