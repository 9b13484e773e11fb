package app

import (
	"context"
	"time"

	"github.com/troupe-dev/troupe/internal/registry"
	"github.com/troupe-dev/troupe/internal/rpc"
	"github.com/troupe-dev/troupe/pkg/memory"
)

// Environment is what a memory service uses outside of its process. The zero value is TCP, Redis and etcd. The
// simulation replaces all three.
type Environment struct {
	Network       rpc.Network
	Store         Store                  // the store (nil means Redis)
	DesiredStates registry.DesiredStates // what operators want (nil means what etcd holds)
}

// Store replaces Redis in an Environment.
type Store interface {
	memory.Store
	// Ping returns an error when the store cannot be reached.
	Ping(ctx context.Context) error
}

// unmaintainedStore is a store whose sessions never expire.
type unmaintainedStore struct{ Store }

// Tenants implements maintenance.Store.
func (unmaintainedStore) Tenants(context.Context) ([]string, error) { return nil, nil }

// Expire implements maintenance.Store.
func (unmaintainedStore) Expire(context.Context, string, time.Duration) (int, error) { return 0, nil }

// Addr returns a name for the log.
func (unmaintainedStore) Addr() string { return "memory" }
