package rpc

import (
	"errors"
	"net"

	"golang.org/x/net/http2"
	"google.golang.org/grpc/credentials"

	"github.com/troupe-dev/troupe/internal/rate"
)

// resetLimitingCredentials wrap each connection so that it is closed when its address resets too many streams. The
// gRPC library serves a stream that is reset at once like any other, and does not report the reset (guarantees
// S20).
type resetCredentials struct {
	credentials.TransportCredentials
	rates *rate.Limiter
}

// ServerHandshake implements credentials.TransportCredentials.
func (f resetCredentials) ServerHandshake(raw net.Conn) (net.Conn, credentials.AuthInfo, error) {
	conn, info, err := f.TransportCredentials.ServerHandshake(raw)
	if err != nil {
		return nil, nil, err
	}
	return &resetConn{Conn: conn, rates: f.rates, skip: len(http2.ClientPreface)}, info, nil
}

// Clone implements credentials.TransportCredentials.
func (f resetCredentials) Clone() credentials.TransportCredentials {
	return resetCredentials{f.TransportCredentials.Clone(), f.rates}
}

// resetCountingConn is a connection that counts the RST_STREAM frames that it reads. Only one goroutine may read
// it.
type resetConn struct {
	net.Conn
	rates *rate.Limiter

	skip int // number of bytes until the next frame begins
	head [frameHead]byte
	have int // number of bytes read into the header
}

const frameHead = 9 // 3 bytes of length, 1 of type, 1 of flags, 4 of the stream id

var errResets = errors.New("rpc: the address has reset too many streams")

// Read implements net.Conn.
func (c *resetConn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	for rest := p[:n]; len(rest) > 0; {
		if c.skip > 0 {
			passed := min(c.skip, len(rest))
			c.skip, rest = c.skip-passed, rest[passed:]
			continue
		}
		taken := copy(c.head[c.have:], rest)
		c.have, rest = c.have+taken, rest[taken:]
		if c.have < frameHead {
			continue
		}
		c.have, c.skip = 0, int(c.head[0])<<16|int(c.head[1])<<8|int(c.head[2])
		if http2.FrameType(c.head[3]) == http2.FrameRSTStream && !c.rates.CountReset(c.RemoteAddr()) {
			return 0, errResets
		}
	}
	return n, err
}
