package store

import (
	"context"
	"errors"
	"fmt"
	"net/url"

	"go.etcd.io/etcd/server/v3/embed"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
)

// EtcdConfig says where the embedded etcd lives.
type EtcdConfig struct {
	DataDir string // made with mode 0700 when it is not there; for this etcd alone
	Log     *zap.Logger
}

// Etcd is an etcd of one member inside this process, on loopback ports of its own choice.
// Its data outlives it: another one on the same folder goes on where it stopped.
type Etcd struct {
	cfg          EtcdConfig
	client, peer url.URL
}

// NewEtcd chooses the ports. Nothing runs and nothing is written before Run.
func NewEtcd(cfg EtcdConfig) (*Etcd, error) {
	client, err := freeAddress()
	if err != nil {
		return nil, err
	}
	peer, err := freeAddress()
	if err != nil {
		return nil, err
	}
	return &Etcd{cfg, url.URL{Scheme: "http", Host: client}, url.URL{Scheme: "http", Host: peer}}, nil
}

// Endpoints are the addresses for clients, host:port. They are the same in every Run.
func (e *Etcd) Endpoints() []string { return []string{e.client.Host} }

// Run serves until ctx ends and calls ready once it does. It may be called again after it
// returned. It is an error when etcd stops by itself, or the folder is in use.
func (e *Etcd) Run(ctx context.Context, ready func()) (err error) {
	release, err := lockFolder(e.cfg.DataDir)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, release()) }()

	server, err := embed.StartEtcd(e.config())
	if err != nil {
		return fmt.Errorf("etcd in %s: %w", e.cfg.DataDir, err)
	}
	defer server.Close()
	select {
	case <-server.Server.ReadyNotify():
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

func (e *Etcd) config() *embed.Config {
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
		zap.WrapCore(func(core zapcore.Core) zapcore.Core { return harmless{core} }),
	))
	return cfg
}

// harmless drops the lines at error level that a life without a fault writes.
type harmless struct{ zapcore.Core }

func (c harmless) Check(e zapcore.Entry, ce *zapcore.CheckedEntry) *zapcore.CheckedEntry {
	switch e.Message {
	case "setting up serving from embedded etcd failed.", // at every close; Run returns the error when it is one
		"failed to update storage version": // at a start, before the first entry is applied; it is tried again
		return ce
	}
	return c.Core.Check(e, ce)
}

func (c harmless) With(fields []zapcore.Field) zapcore.Core { return harmless{c.Core.With(fields)} }
