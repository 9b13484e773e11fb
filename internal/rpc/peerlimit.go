package rpc

import (
	"net"
	"net/netip"
	"sync"

	"go.uber.org/zap"

	"github.com/troupe-dev/troupe/internal/rate"
)

// MaxPeerConnections is the default limit of connections from one address to a port for clients (guarantee S9).
// One connection carries up to 256 concurrent calls.
const MaxPeerConnections = 32

// MaxInternalPeerConnections is the same limit for a port inside the mesh. A process has one connection to each
// other process, and two while it reconnects. Many processes may share an address: on one machine, or behind a NAT
// or a sidecar. The limit allows 500 of them. It still keeps a client without a certificate from using up the file
// descriptors, because each handshake may take 5 s.
const MaxInternalPeerConnections = 1024

// peerLimiter is a listener that limits the connections of each address. It closes excess connections before
// reading from them. An IPv6 /64 counts as one address, because one machine usually owns all of it.
type peerLimiter struct {
	net.Listener
	limit int
	log   *zap.Logger

	mu          sync.Mutex
	connections map[netip.Prefix]int
}

func newPeerLimiter(lis net.Listener, limit int, log *zap.Logger) *peerLimiter {
	return &peerLimiter{Listener: lis, limit: limit, log: log, connections: map[netip.Prefix]int{}}
}

// Accept returns the next connection that is within the limit of its address.
func (l *peerLimiter) Accept() (net.Conn, error) {
	for {
		conn, err := l.Listener.Accept()
		if err != nil {
			return nil, err
		}
		peer, ok := rate.PeerPrefix(conn.RemoteAddr())
		if !ok {
			return conn, nil
		}
		if l.acquire(peer) {
			return &peerConn{Conn: conn, release: sync.OnceFunc(func() { l.release(peer) })}, nil
		}
		l.log.Debug("connection closed: its address has reached the limit", zap.Stringer("peer", peer), zap.Int("limit", l.limit))
		_ = conn.Close() // the client sees a closed connection
	}
}

func (l *peerLimiter) acquire(peer netip.Prefix) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.connections[peer] >= l.limit {
		return false
	}
	l.connections[peer]++
	return true
}

func (l *peerLimiter) release(peer netip.Prefix) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.connections[peer]--; l.connections[peer] == 0 {
		delete(l.connections, peer)
	}
}

// peerConn is a connection that counts against the limit of its address until it is closed.
type peerConn struct {
	net.Conn
	release func()
}

func (c *peerConn) Close() error {
	defer c.release()
	return c.Conn.Close()
}
