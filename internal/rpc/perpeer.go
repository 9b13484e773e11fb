package rpc

import (
	"net"
	"net/netip"
	"sync"

	"go.uber.org/zap"

	"github.com/troupe-dev/troupe/internal/rate"
)

// MaxPeerConnections is how many connections one address may have at a port for clients, unless
// it is told otherwise (guarantees S9). One carries 256 calls at once.
const MaxPeerConnections = 32

// MaxInnerPeerConnections is the same of a port inside the mesh. A process has one connection to
// each other, two while one is made anew, and many processes may have one address: those of one
// machine, or behind a NAT or a sidecar. So it is high enough for 500 of them, and still keeps who
// cannot prove anything from all descriptors of the process: a handshake may take 5 s.
const MaxInnerPeerConnections = 1024

// perPeer is a listener that closes, before anything is read of them, the connections that an
// address has too many of. An IPv6 /64 is one address, as it is one machine.
type perPeer struct {
	net.Listener
	limit int
	log   *zap.Logger

	mu   sync.Mutex
	open map[netip.Prefix]int
}

func newPerPeer(lis net.Listener, limit int, log *zap.Logger) *perPeer {
	return &perPeer{Listener: lis, limit: limit, log: log, open: map[netip.Prefix]int{}}
}

// Accept returns the next connection that its peer may have.
func (l *perPeer) Accept() (net.Conn, error) {
	for {
		conn, err := l.Listener.Accept()
		if err != nil {
			return nil, err
		}
		peer, ok := rate.Peer(conn.RemoteAddr())
		if !ok {
			return conn, nil
		}
		if l.take(peer) {
			return &peerConn{Conn: conn, closed: sync.OnceFunc(func() { l.release(peer) })}, nil
		}
		l.log.Debug("connection refused: its address has as many as it may", zap.Stringer("peer", peer), zap.Int("limit", l.limit))
		_ = conn.Close() // nobody is told
	}
}

func (l *perPeer) take(peer netip.Prefix) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.open[peer] >= l.limit {
		return false
	}
	l.open[peer]++
	return true
}

func (l *perPeer) release(peer netip.Prefix) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.open[peer]--; l.open[peer] == 0 {
		delete(l.open, peer)
	}
}

// peerConn is a connection that is counted until it is closed.
type peerConn struct {
	net.Conn
	closed func()
}

func (c *peerConn) Close() error {
	defer c.closed()
	return c.Conn.Close()
}
