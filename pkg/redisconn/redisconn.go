// Package redisconn connects to Redis, the same way for every store of the mesh: one set of
// limits, no write that the library repeats, and errors that a caller can act on.
package redisconn

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/url"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/logging"
	"github.com/redis/go-redis/v9/maintnotifications"
)

// Limits of the connections. The deadline of a call's context is kept beside them.
const (
	poolSize    = 64 // calls of many sessions meet in one fsync, so more wait than work
	poolTimeout = 2 * time.Second
	dialTimeout = 2 * time.Second
	ioTimeout   = 3 * time.Second
)

// Conn is a client of one Redis or Redis Cluster. It connects when first used, and
// reconnects by itself. Safe for concurrent use; Close it.
type Conn struct {
	redis.UniversalClient
	addr string
}

// Addr is where Redis is, without credentials.
func (c *Conn) Addr() string { return c.addr }

// Open returns a client of the URL: redis://[user:password@]host:port/db, rediss:// for TLS
// or unix://path. A query ?addr=host:port names one more node of a Redis Cluster, and may
// be repeated. The client never repeats a write by itself: only the caller knows whether it
// may (guarantees 5.3).
func Open(url string) (*Conn, error) {
	client, addr, err := open(url)
	if err != nil {
		return nil, err
	}
	return &Conn{client, addr}, nil
}

func open(address string) (redis.UniversalClient, string, error) {
	redis.SetLogger(&logging.VoidLogger{}) // its lines are not ours in form, and every error comes back to us
	u, err := url.Parse(address)
	if err != nil {
		return nil, "", badURL(err)
	}
	if u.Query().Has("addr") {
		return openCluster(address)
	}
	o, err := redis.ParseURL(address)
	if err != nil {
		return nil, "", badURL(err)
	}
	o.MaxRetries = -1
	o.DialerRetries = 1
	o.DialTimeout = cmp.Or(o.DialTimeout, dialTimeout)
	o.ReadTimeout = cmp.Or(o.ReadTimeout, ioTimeout)
	o.WriteTimeout = cmp.Or(o.WriteTimeout, ioTimeout)
	o.PoolSize = cmp.Or(o.PoolSize, poolSize)
	o.PoolTimeout = cmp.Or(o.PoolTimeout, poolTimeout)
	o.ContextTimeoutEnabled = true
	o.DisableIdentity = true
	o.MaintNotificationsConfig = &maintnotifications.Config{Mode: maintnotifications.ModeDisabled}
	return redis.NewClient(o), o.Addr, nil
}

func openCluster(address string) (redis.UniversalClient, string, error) {
	o, err := redis.ParseClusterURL(address)
	if err != nil {
		return nil, "", badURL(err)
	}
	o.MaxRetries = -1
	o.DialTimeout = cmp.Or(o.DialTimeout, dialTimeout)
	o.ReadTimeout = cmp.Or(o.ReadTimeout, ioTimeout)
	o.WriteTimeout = cmp.Or(o.WriteTimeout, ioTimeout)
	o.PoolSize = cmp.Or(o.PoolSize, poolSize)
	o.PoolTimeout = cmp.Or(o.PoolTimeout, poolTimeout)
	o.ContextTimeoutEnabled = true
	o.DisableIdentity = true
	o.MaintNotificationsConfig = &maintnotifications.Config{Mode: maintnotifications.ModeDisabled}
	return redis.NewClusterClient(o), strings.Join(o.Addrs, ","), nil
}

// badURL leaves the URL out of the error: it may hold a password.
func badURL(err error) error {
	if wrapped, ok := errors.AsType[*url.Error](err); ok {
		err = wrapped.Err
	}
	return fmt.Errorf("redis URL: %w; want redis://[user:password@]host:port/db", err)
}

// Answers returns nil when Redis answers and takes commands.
func (c *Conn) Answers(ctx context.Context) error {
	if err := c.Ping(ctx).Err(); err != nil {
		return c.Fault("redis.Ping", err)
	}
	return nil
}

// Durable returns nil when every acknowledged write is on disk, and else an error that
// names the setting that is missing (guarantees 0.2).
func (c *Conn) Durable(ctx context.Context) error {
	got, err := c.ConfigGet(ctx, "*append*").Result()
	if err != nil {
		return fmt.Errorf("redis at %s does not say how it persists; take it that a crash of redis loses turns that were acknowledged: %w", c.addr, err)
	}
	for _, want := range []struct{ name, value string }{
		{"appendonly", "yes"},
		{"appendfsync", "always"},
		{"no-appendfsync-on-rewrite", "no"},
	} {
		if got[want.name] != want.value {
			return fmt.Errorf("redis at %s runs with %s %s: a crash of redis loses turns that were acknowledged; set %s %s",
				c.addr, want.name, cmp.Or(got[want.name], "unset"), want.name, want.value)
		}
	}
	return nil
}
