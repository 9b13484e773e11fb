// Package redisconn connects to Redis, the same way for every store of the mesh: one set of
// limits, no write that the library repeats, and errors that a caller can act on.
package redisconn

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/url"
	"strings"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/logging"
	"github.com/redis/go-redis/v9/maintnotifications"
)

// Limits of the connections. The deadline of a call's context applies as well.
const (
	poolSize    = 64 // calls of many sessions meet in one fsync, so more wait than work
	poolTimeout = 2 * time.Second
	dialTimeout = 2 * time.Second
	ioTimeout   = 3 * time.Second
)

// Config says where Redis is and how to connect to it.
type Config struct {
	// URL is redis://[user:password@]host:port/db, rediss:// for TLS or unix://path. A query
	// ?addr=host:port names one more node of a Redis Cluster, and may be repeated.
	URL      string
	Security Security
	// OnConnect, if set, is called with each new connection before it is used, and may send commands on it. Its error closes the
	// connection. It is called again before a node of a Cluster, which may have been a replica, is first asked about data.
	OnConnect func(ctx context.Context, conn *redis.Conn) error
	// Replicas is how many replicas must confirm a write before it is acknowledged, and ReplicaTime how long they may take (0
	// means 200 ms). With replicas, transactions cannot be used.
	Replicas    int
	ReplicaTime time.Duration
	// Dial opens the connections, but not those to a Cluster (nil means over the network).
	Dial func(ctx context.Context, network, address string) (net.Conn, error)
}

// Conn is a client of one Redis or Redis Cluster. It connects when it is first used, and reconnects by itself. It is safe for
// concurrent use. Close must be called.
type Conn struct {
	redis.UniversalClient
	addr string
}

// Addr returns where Redis is, without credentials.
func (c *Conn) Addr() string { return c.addr }

// New returns a client. It never repeats a command by itself, because only the caller knows whether that is safe (guarantees
// 5.3). An error in the configuration, files included, names the flag of the services and contains no password.
func New(cfg Config) (*Conn, error) {
	redis.SetLogger(&logging.VoidLogger{}) // its lines are not ours in form, and every error comes back to us
	u, err := url.Parse(cfg.URL)
	if err != nil {
		return nil, badURL(err)
	}
	if u.Query().Has("addr") {
		return newCluster(cfg)
	}
	o, err := redis.ParseURL(cfg.URL)
	if err != nil {
		return nil, badURL(err)
	}
	o.DialTimeout = cmp.Or(o.DialTimeout, dialTimeout)
	if o.Dialer, err = cfg.dialer(o.DialTimeout, o.TLSConfig); err != nil {
		return nil, err
	}
	o.CredentialsProviderContext = cfg.Security.credentials(o.Username)
	o.OnConnect = cfg.OnConnect
	o.MaxRetries = -1
	o.DialerRetries = 1
	o.ReadTimeout = cmp.Or(o.ReadTimeout, ioTimeout)
	o.WriteTimeout = cmp.Or(o.WriteTimeout, ioTimeout)
	o.PoolSize = cmp.Or(o.PoolSize, poolSize)
	o.PoolTimeout = cmp.Or(o.PoolTimeout, poolTimeout)
	o.ContextTimeoutEnabled = true
	o.DisableIdentity = true
	o.MaintNotificationsConfig = &maintnotifications.Config{Mode: maintnotifications.ModeDisabled}
	return &Conn{cfg.node(o), o.Addr}, nil
}

func newCluster(cfg Config) (*Conn, error) {
	o, err := redis.ParseClusterURL(cfg.URL)
	if err != nil {
		return nil, badURL(err)
	}
	o.DialTimeout = cmp.Or(o.DialTimeout, dialTimeout)
	cfg.Dial = nil
	if o.Dialer, err = cfg.dialer(o.DialTimeout, o.TLSConfig); err != nil {
		return nil, err
	}
	o.CredentialsProviderContext = cfg.Security.credentials(o.Username)
	o.OnConnect = cfg.OnConnect
	o.MaxRetries = -1
	o.ReadTimeout = cmp.Or(o.ReadTimeout, ioTimeout)
	o.WriteTimeout = cmp.Or(o.WriteTimeout, ioTimeout)
	o.PoolSize = cmp.Or(o.PoolSize, poolSize)
	o.PoolTimeout = cmp.Or(o.PoolTimeout, poolTimeout)
	o.ContextTimeoutEnabled = true
	o.DisableIdentity = true
	o.MaintNotificationsConfig = &maintnotifications.Config{Mode: maintnotifications.ModeDisabled}
	o.NewClient = cfg.clusterNode
	client := redis.NewClusterClient(o)
	client.AddHook(noRetryHook{})
	return &Conn{client, strings.Join(o.Addrs, ",")}, nil
}

// dialer opens connections with what the files hold at that time. It fails when the files cannot be used now.
func (cfg Config) dialer(timeout time.Duration, from *tls.Config) (dialer, error) {
	if _, err := cfg.Security.tls(from); err != nil {
		return nil, err
	}
	if _, err := cfg.Security.password(); err != nil {
		return nil, err
	}
	dial := dialer(cfg.Dial)
	if dial == nil {
		dial = redis.NewDialer(&redis.Options{DialTimeout: timeout})
	}
	return cfg.Security.withTLS(dial, from), nil
}

// clusterNode returns a client of one node of a Cluster.
func (cfg Config) clusterNode(o *redis.Options) *redis.Client {
	client := cfg.node(o)
	if cfg.OnConnect != nil {
		client.AddHook(masterHook{client, cfg.OnConnect, new(atomic.Bool)})
	}
	return client
}

// node returns a client of one node.
func (cfg Config) node(o *redis.Options) *redis.Client {
	client := redis.NewClient(o)
	if cfg.Replicas > 0 {
		client.AddHook(replicationHook{client, cfg.Replicas, cmp.Or(cfg.ReplicaTime, replicaTime)})
	}
	return client
}

// EachMaster calls do for every node that takes writes, and stops at the first error. The calls may overlap.
func (c *Conn) EachMaster(ctx context.Context, do func(context.Context, redis.Cmdable) error) error {
	if cluster, ok := c.UniversalClient.(*redis.ClusterClient); ok {
		return cluster.ForEachMaster(ctx, func(ctx context.Context, node *redis.Client) error { return do(ctx, node) })
	}
	return do(ctx, c.UniversalClient)
}

// badURL leaves the URL out of the error: it may hold a password.
func badURL(err error) error {
	if wrapped, ok := errors.AsType[*url.Error](err); ok {
		err = wrapped.Err
	}
	return fmt.Errorf("--redis: redis URL: %w; want redis://[user:password@]host:port/db", err)
}
