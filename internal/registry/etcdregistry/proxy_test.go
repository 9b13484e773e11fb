package etcdregistry_test

import (
	"io"
	"net"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/zap"

	"github.com/troupe-dev/troupe/internal/lifecycle"
	"github.com/troupe-dev/troupe/internal/registry"
	"github.com/troupe-dev/troupe/internal/registry/etcdregistry"
	"github.com/troupe-dev/troupe/internal/registry/registrytest"
	"github.com/troupe-dev/troupe/pkg/failure"
	"github.com/troupe-dev/troupe/test/etcdtest"
)

// breakableProxy is a TCP proxy to a server that can break its connections and restore them.
type breakableProxy struct {
	target   string
	listener net.Listener
	running  sync.WaitGroup

	mu    sync.Mutex
	isCut bool
	conns map[net.Conn]struct{}
}

func newProxy(t *testing.T, target string) *breakableProxy {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	l := &breakableProxy{target: target, listener: listener, conns: map[net.Conn]struct{}{}}
	l.running.Go(l.accept)
	t.Cleanup(func() {
		require.NoError(t, listener.Close())
		l.Disconnect()
		l.running.Wait()
	})
	return l
}

// Disconnect breaks all connections and rejects new ones.
func (b *breakableProxy) Disconnect() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.isCut = true
	for c := range b.conns {
		_ = c.Close()
	}
	clear(b.conns)
}

// Restore accepts connections again.
func (b *breakableProxy) Restore() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.isCut = false
}

func (b *breakableProxy) accept() {
	for {
		near, err := b.listener.Accept()
		if err != nil {
			return
		}
		far, err := net.Dial("tcp", b.target)
		if err != nil || !b.addPair(near, far) {
			_ = near.Close()
			continue
		}
		for _, pair := range [][2]net.Conn{{near, far}, {far, near}} {
			b.running.Go(func() {
				_, _ = io.Copy(pair[0], pair[1])
				_ = near.Close()
				_ = far.Close()
			})
		}
	}
}

func (b *breakableProxy) addPair(near, far net.Conn) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.isCut {
		_ = far.Close()
		return false
	}
	b.conns[near], b.conns[far] = struct{}{}, struct{}{}
	return true
}

func TestWatch_RelistsAfterACompactionDuringAnOutage(t *testing.T) {
	t.Parallel()
	etcd := etcdtest.Start(t)
	l := newProxy(t, etcd.Endpoints()[0])
	far, err := etcdregistry.Dial([]string{l.listener.Addr().String()}, zap.NewNop())
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, far.Close()) })
	near := etcdregistry.New(etcd.Client(), zap.NewNop(), etcdregistry.Config{})
	o := registrytest.Observe(t, etcdregistry.New(far, zap.NewNop(), etcdregistry.Config{}))
	require.Empty(t, o.NextList())
	a := registrytest.Register(t, near, registrytest.NewInstance("research", "a"))
	o.NextPut()

	l.Disconnect()
	require.NoError(t, a.Close(t.Context()))
	b := registrytest.Register(t, near, registrytest.NewInstance("research", "b"))
	etcd.Compact()
	l.Restore()

	list := o.NextList()
	require.Len(t, list, 1)
	require.Equal(t, "b", list[0].ID)
	require.NoError(t, b.SetState(t.Context(), lifecycle.Ready))
	require.Equal(t, lifecycle.Ready, o.NextPut().State)
}

func TestWatch_ReportsAnOutageOnce(t *testing.T) {
	t.Parallel()
	etcd := etcdtest.Start(t)
	l := newProxy(t, etcd.Endpoints()[0])
	far, err := etcdregistry.Dial([]string{l.listener.Addr().String()}, zap.NewNop())
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, far.Close()) })
	near := etcdregistry.New(etcd.Client(), zap.NewNop(), etcdregistry.Config{})
	o := registrytest.Observe(t, etcdregistry.New(far, zap.NewNop(), etcdregistry.Config{}))
	require.Empty(t, o.NextList())

	l.Disconnect()
	registrytest.Register(t, near, registrytest.NewInstance("research", "a"))
	require.True(t, failure.Is(o.Next().Unreachable, failure.SystemNetwork, failure.SystemTimeout))
	l.Restore()
	require.Len(t, o.NextList(), 1)
	require.Contains(t, o.Known, registry.Key{Agent: "research", ID: "a"})
}
