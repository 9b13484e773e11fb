// Package redisconn connects every store of the mesh to Redis in the same way: with the same limits, without
// retries of writes by the library, and with errors that a caller can act on.
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

// These are the limits of the connections. The deadline of a call's context applies as well.
const (
	poolSize    = 64 // most calls wait for an fsync that many sessions share
	poolTimeout = 2 * time.Second
	dialTimeout = 2 * time.Second
	ioTimeout   = 3 * time.Second
)

// Config says where Redis is and how to connect to it.
type Config struct {
	// URL is redis://[user:password@]host:port/db, rediss:// for TLS, or unix://path. The query parameter
	// addr=host:port names another node of a Redis Cluster, and may be repeated.
	URL      string
	Security Security
	// OnConnect, if set, is called with each new connection before it is used, and may send commands on it. Its
	// error closes the connection. In a Cluster it is called again before the first data command to a node,
	// because the node may have been a replica.
	OnConnect func(ctx context.Context, conn *redis.Conn) error
	// Replicas is how many replicas must confirm a write before it is acknowledged. ReplicaTime is how long they
	// may take (0 means 200 ms). With replicas, transactions cannot be used.
	Replicas    int
	ReplicaTime time.Duration
	// Dial opens the connections (nil means over the network). A Cluster ignores it.
	Dial func(ctx context.Context, network, address string) (net.Conn, error)
}

// Conn is a client of a single Redis or a Redis Cluster. It connects when it is first used, and reconnects by
// itself. It is safe for concurrent use. The caller must close it.
type Conn struct {
	redis.UniversalClient
	addr string
}

// Addr returns the address of Redis without credentials.
func (c *Conn) Addr() string { return c.addr }

// New returns a client. The client never retries a command, because only its caller knows whether that is safe
// (guarantees, section 5.3). An error in the configuration or its files names the flag and contains no password.
func New(cfg Config) (*Conn, error) {
	redis.SetLogger(&logging.VoidLogger{}) // it logs in another format, and every error is returned anyway
	u, err := url.Parse(cfg.URL)
	if err != nil {
		return nil, invalidURLError(err)
	}
	if u.Query().Has("addr") {
		return newCluster(cfg)
	}
	o, err := redis.ParseURL(cfg.URL)
	if err != nil {
		return nil, invalidURLError(err)
	}
	o.DialTimeout = cmp.Or(o.DialTimeout, dialTimeout)
	if o.Dialer, err = cfg.newDialer(o.DialTimeout, o.TLSConfig); err != nil {
		return nil, err
	}
	o.CredentialsProviderContext = cfg.Security.credentialsProvider(o.Username)
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
	return &Conn{cfg.newNodeClient(o), o.Addr}, nil
}

func newCluster(cfg Config) (*Conn, error) {
	o, err := redis.ParseClusterURL(cfg.URL)
	if err != nil {
		return nil, invalidURLError(err)
	}
	o.DialTimeout = cmp.Or(o.DialTimeout, dialTimeout)
	cfg.Dial = nil
	if o.Dialer, err = cfg.newDialer(o.DialTimeout, o.TLSConfig); err != nil {
		return nil, err
	}
	o.CredentialsProviderContext = cfg.Security.credentialsProvider(o.Username)
	o.OnConnect = cfg.OnConnect
	o.MaxRetries = -1
	o.ReadTimeout = cmp.Or(o.ReadTimeout, ioTimeout)
	o.WriteTimeout = cmp.Or(o.WriteTimeout, ioTimeout)
	o.PoolSize = cmp.Or(o.PoolSize, poolSize)
	o.PoolTimeout = cmp.Or(o.PoolTimeout, poolTimeout)
	o.ContextTimeoutEnabled = true
	o.DisableIdentity = true
	o.MaintNotificationsConfig = &maintnotifications.Config{Mode: maintnotifications.ModeDisabled}
	o.NewClient = cfg.newClusterNodeClient
	client := redis.NewClusterClient(o)
	client.AddHook(noRetryHook{})
	return &Conn{client, strings.Join(o.Addrs, ",")}, nil
}

// newDialer returns a dialer that reads the certificate files for each connection. It fails if the files are
// invalid now.
func (cfg Config) newDialer(timeout time.Duration, from *tls.Config) (dialer, error) {
	if _, err := cfg.Security.tlsConfig(from); err != nil {
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

// newClusterNodeClient returns a client of one node of a Cluster.
func (cfg Config) newClusterNodeClient(o *redis.Options) *redis.Client {
	client := cfg.newNodeClient(o)
	if cfg.OnConnect != nil {
		client.AddHook(masterHook{client, cfg.OnConnect, new(atomic.Bool)})
	}
	return client
}

// newNodeClient returns a client of one node.
func (cfg Config) newNodeClient(o *redis.Options) *redis.Client {
	client := redis.NewClient(o)
	if cfg.Replicas > 0 {
		client.AddHook(replicationHook{client, cfg.Replicas, cmp.Or(cfg.ReplicaTime, defaultReplicaTime)})
	}
	return client
}

// EachMaster calls do for every node that takes writes, possibly concurrently, and returns the first error.
func (c *Conn) EachMaster(ctx context.Context, do func(context.Context, redis.Cmdable) error) error {
	if cluster, ok := c.UniversalClient.(*redis.ClusterClient); ok {
		return cluster.ForEachMaster(ctx, func(ctx context.Context, node *redis.Client) error { return do(ctx, node) })
	}
	return do(ctx, c.UniversalClient)
}

// invalidURLError returns the error for an invalid URL. It leaves out the URL, which may hold a password.
func invalidURLError(err error) error {
	if wrapped, ok := errors.AsType[*url.Error](err); ok {
		err = wrapped.Err
	}
	return fmt.Errorf("--redis: redis URL: %w; want redis://[user:password@]host:port/db", err)
}
