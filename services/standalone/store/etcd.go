package store

import (
	"context"
	"errors"
	"fmt"
	"net/url"

	"go.etcd.io/etcd/client/pkg/v3/transport"
	"go.etcd.io/etcd/server/v3/embed"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"

	"github.com/troupe-dev/troupe/internal/identity"
	"github.com/troupe-dev/troupe/internal/registry/etcdregistry/etcdauth"
)

// EtcdConfig configures the embedded etcd.
type EtcdConfig struct {
	DataDir string // created with mode 0700 if it does not exist; used only by this etcd
	Log     *zap.Logger
	// CA issues the certificate of etcd. Clients need a certificate of the same CA and have the rights that
	// package etcdauth grants. Nil means plain text without authentication, for tests of other features.
	CA     *identity.CA
	Agents []string // the agents whose workers may connect

	Client, Peer string // host:port to listen on (empty means a free port of loopback)
}

// Etcd is an etcd with one member inside this process. It chooses its own loopback ports. The data stay on disk,
// so a new Etcd with the same folder has the same data.
type Etcd struct {
	cfg          EtcdConfig
	client, peer url.URL
}

// NewEtcd chooses the ports. It starts nothing and writes nothing before Run.
func NewEtcd(cfg EtcdConfig) (*Etcd, error) {
	for _, address := range []*string{&cfg.Client, &cfg.Peer} {
		if *address != "" {
			continue
		}
		var err error
		if *address, err = freeAddress(); err != nil {
			return nil, err
		}
	}
	scheme := "http"
	if cfg.CA != nil {
		scheme = "https"
	}
	return &Etcd{cfg, url.URL{Scheme: scheme, Host: cfg.Client}, url.URL{Scheme: scheme, Host: cfg.Peer}}, nil
}

// Endpoints returns the addresses for clients: https://host:port, or host:port in plain text. They never change.
func (e *Etcd) Endpoints() []string {
	if e.cfg.CA != nil {
		return []string{e.client.String()}
	}
	return []string{e.client.Host}
}

// Run runs etcd until ctx ends, and calls ready once etcd serves. It may be called again after it has returned. It
// fails if etcd stops by itself or the folder is in use.
func (e *Etcd) Run(ctx context.Context, ready func()) (err error) {
	release, err := lockFolder(e.cfg.DataDir)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, release()) }()

	cfg, err := e.config()
	if err != nil {
		return err
	}
	server, err := embed.StartEtcd(cfg)
	if err != nil {
		return fmt.Errorf("etcd in %s: %w", e.cfg.DataDir, err)
	}
	defer server.Close()
	select {
	case <-server.Server.ReadyNotify():
		if err := e.provision(ctx); err != nil {
			if ctx.Err() != nil {
				return nil
			}
			return err
		}
		ready()
	case <-ctx.Done():
		return nil
	case <-server.Server.StopNotify():
		return fmt.Errorf("etcd in %s stopped before it was ready", e.cfg.DataDir)
	}
	select {
	case <-ctx.Done():
		return nil
	case <-server.Server.StopNotify():
		return fmt.Errorf("etcd in %s stopped by itself", e.cfg.DataDir)
	case err := <-server.Err():
		return fmt.Errorf("etcd in %s: %w", e.cfg.DataDir, err)
	}
}

// provision creates the users and roles, also for existing data that have none.
func (e *Etcd) provision(ctx context.Context) error {
	if e.cfg.CA == nil {
		return nil
	}
	root, err := e.cfg.CA.ExternalUserCredentials(etcdauth.Root)
	if err != nil {
		return err
	}
	_, err = etcdauth.ConnectAndProvision(ctx, root, e.Endpoints(), e.cfg.Agents)
	return err
}

func (e *Etcd) config() (*embed.Config, error) {
	cfg := embed.NewConfig()
	cfg.Name = "standalone"
	cfg.Dir = e.cfg.DataDir
	cfg.ListenClientUrls, cfg.AdvertiseClientUrls = []url.URL{e.client}, []url.URL{e.client}
	cfg.ListenPeerUrls, cfg.AdvertisePeerUrls = []url.URL{e.peer}, []url.URL{e.peer}
	cfg.InitialCluster = cfg.InitialClusterFromName(cfg.Name)
	cfg.EnableGRPCGateway = false
	cfg.LogLevel = zapcore.ErrorLevel.String()
	cfg.ZapLoggerBuilder = embed.NewZapLoggerBuilder(e.cfg.Log.Named("etcd").WithOptions(
		zap.IncreaseLevel(zapcore.ErrorLevel),
		zap.WrapCore(func(core zapcore.Core) zapcore.Core { return filteredCore{core} }),
	))
	if e.cfg.CA == nil {
		return cfg, nil
	}
	files, err := e.cfg.CA.WriteServerFiles(e.cfg.DataDir, "etcd")
	cfg.ClientTLSInfo = transport.TLSInfo{CertFile: files.Cert, KeyFile: files.Key, TrustedCAFile: files.CA, ClientCertAuth: true}
	cfg.PeerTLSInfo = cfg.ClientTLSInfo // it has no peers, and this address keeps others from joining
	cfg.PeerTLSInfo.AllowedCNs = []string{"etcd"}
	return cfg, err
}

// filteredCore drops log lines of level error that etcd also writes during normal operation.
type filteredCore struct{ zapcore.Core }

func (c filteredCore) Check(e zapcore.Entry, ce *zapcore.CheckedEntry) *zapcore.CheckedEntry {
	switch e.Message {
	case "setting up serving from embedded etcd failed.", // logged at every close; Run returns real errors
		"failed to update storage version": // logged at startup, before the first entry is applied; etcd retries
		return ce
	}
	return c.Core.Check(e, ce)
}

func (c filteredCore) With(fields []zapcore.Field) zapcore.Core {
	return filteredCore{c.Core.With(fields)}
}
