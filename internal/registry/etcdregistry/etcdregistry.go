// Package etcdregistry is the registry over etcd: a key for each instance, under a lease,
// and one without a lease for what operators want of it.
//
//	<prefix>/<agent>/<instance id>    the instance as JSON; its incarnation is the key's create revision
//	<desired>/<agent>/<instance id>   RUN, PAUSE or DRAIN, with the reason, as JSON
//	<desired>/<agent>/                QUARANTINE, of the agent as a whole, likewise
//	<stores>/<name>                   generation, beat and identity of a store's data, as JSON (StoreRecords)
//
// A lease is trusted only to remove the records of dead instances. A live instance can lose its lease, and a
// dead one keeps it for the TTL, or longer when etcd changes its leader (guarantees, section 2.6).
package etcdregistry

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/cenkalti/backoff/v5"
	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"

	"github.com/troupe-dev/troupe/internal/registry"
	"github.com/troupe-dev/troupe/internal/wire/instancewire"
	"github.com/troupe-dev/troupe/pkg/failure"
)

// Defaults of Config.
const (
	DefaultPrefix        = "/troupe/v1/reg"
	DefaultDesiredPrefix = "/troupe/v1/desired"
	DefaultTTL           = 15 * time.Second
)

// callTimeout is the timeout of each call to etcd, so that an unresponsive member is noticed.
const callTimeout = 3 * time.Second

// Config says under which keys a Registry stores its data, and for how long. Zero fields get defaults.
type Config struct {
	Prefix        string // prefix of instance keys, without a trailing slash
	DesiredPrefix string // prefix of desired states, without a trailing slash
	// TTL is how long a registration outlives its process. etcd counts whole seconds, takes no less than about 2
	// s, and may keep a lease longer than its TTL but never shorter.
	TTL time.Duration
	// OnDenied, if set, is called when etcd does not permit this process to register. If it returns nil, the
	// registry tries again at once. Only development uses it, where a process may provision itself.
	OnDenied func(context.Context) error
}

// Registry implements registry.Registry. It is safe for concurrent use.
type Registry struct {
	client         *clientv3.Client
	log            *zap.Logger
	instancePrefix string // with a trailing slash
	desiredPrefix  string // with a trailing slash
	ttlSeconds     int64  // seconds
	onDenied       func(context.Context) error
}

// New returns a registry that stores its data in etcd through client. The caller closes client after all
// registrations and watches have ended.
func New(client *clientv3.Client, log *zap.Logger, cfg Config) *Registry {
	if cfg.Prefix == "" {
		cfg.Prefix = DefaultPrefix
	}
	if cfg.DesiredPrefix == "" {
		cfg.DesiredPrefix = DefaultDesiredPrefix
	}
	if cfg.TTL <= 0 {
		cfg.TTL = DefaultTTL
	}
	return &Registry{
		client:         client,
		log:            log.Named("registry"),
		instancePrefix: cfg.Prefix + "/",
		desiredPrefix:  cfg.DesiredPrefix + "/",
		ttlSeconds:     int64((cfg.TTL + time.Second - 1) / time.Second),
		onDenied:       cfg.OnDenied,
	}
}

func (r *Registry) instancePath(k registry.Key) string { return pathFromKey(r.instancePrefix, k) }

func pathFromKey(prefix string, k registry.Key) string { return prefix + k.Agent + "/" + k.ID }

// keyFromPath is the inverse of pathFromKey.
func keyFromPath(prefix string, path []byte) registry.Key {
	agent, id, _ := strings.Cut(strings.TrimPrefix(string(path), prefix), "/")
	return registry.Key{Agent: agent, ID: id}
}

// decodeInstance decodes a stored instance; ok is false if it is invalid. Any holder of a worker's certificate can
// write invalid data, so decodeInstance only logs the error.
func (r *Registry) decodeInstance(kv *mvccpb.KeyValue) (registry.Instance, bool) {
	in, err := instanceFromKV(kv, keyFromPath(r.instancePrefix, kv.Key))
	if err != nil {
		r.log.Warn("a key in the registry holds no instance", zap.ByteString("key", kv.Key), zap.Error(err))
	}
	return in, err == nil
}

// maxStoredBytes limits the size of a stored registration.
const maxStoredBytes = 64 << 10

func instanceFromKV(kv *mvccpb.KeyValue, key registry.Key) (registry.Instance, error) {
	switch {
	case len(kv.Value) > maxStoredBytes:
		return registry.Instance{}, fmt.Errorf("it has %d bytes; at most %d are allowed", len(kv.Value), maxStoredBytes)
	case kv.Lease == 0:
		return registry.Instance{}, errors.New("it has no lease, so it would outlive its worker")
	}
	in, err := instancewire.UnmarshalInstance(kv.Value)
	if err != nil {
		return registry.Instance{}, err
	}
	in.Agent, in.ID, in.Incarnation = key.Agent, key.ID, kv.CreateRevision
	in.Description = registry.SingleLine(in.Description)
	return in, in.Check()
}

func (r *Registry) callError(ctx context.Context, op string, err error) error {
	return newCallError(ctx, r.client, op, err)
}

// newCallError returns the error for a failed call to etcd: etcd denied it, or did not answer. If the caller
// cancelled ctx, it returns the cause of ctx.
func newCallError(ctx context.Context, client *clientv3.Client, op string, err error) error {
	if errors.Is(ctx.Err(), context.Canceled) {
		return context.Cause(ctx)
	}
	if isDenied(err) {
		return failure.Newf(failure.PolicySecurity, op, "the registry (etcd at %s) does not let the user of this certificate do that; "+
			"create users and roles with troupe provision etcd", strings.Join(client.Endpoints(), ", ")).Because(err)
	}
	mode := failure.SystemNetwork
	if errors.Is(err, context.DeadlineExceeded) {
		mode = failure.SystemTimeout
	}
	return failure.Newf(mode, op, "the registry (etcd at %s) does not answer", strings.Join(client.Endpoints(), ", ")).Because(err)
}

// newBackoff returns the backoff of calls to an unreachable etcd: short pauses first, then longer ones. Its jitter
// keeps the instances from all reconnecting at once.
func newBackoff() *backoff.ExponentialBackOff {
	b := backoff.NewExponentialBackOff()
	b.InitialInterval, b.MaxInterval, b.Multiplier = 100*time.Millisecond, 3*time.Second, 2
	b.Reset()
	return b
}
