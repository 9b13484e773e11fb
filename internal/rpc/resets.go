package rpc

import (
	"errors"
	"net"

	"golang.org/x/net/http2"
	"google.golang.org/grpc/credentials"

	"github.com/troupe-dev/troupe/internal/rate"
)

// frames are credentials whose connections end when their address takes back too many calls: the
// library serves a stream that is reset at once like any other, and tells nobody of it
// (guarantees S20).
type frames struct {
	credentials.TransportCredentials
	rates *rate.Limiter
}

// ServerHandshake implements credentials.TransportCredentials.
func (f frames) ServerHandshake(raw net.Conn) (net.Conn, credentials.AuthInfo, error) {
	conn, info, err := f.TransportCredentials.ServerHandshake(raw)
	if err != nil {
		return nil, nil, err
	}
	return &framed{Conn: conn, rates: f.rates, skip: len(http2.ClientPreface)}, info, nil
}

// Clone implements credentials.TransportCredentials.
func (f frames) Clone() credentials.TransportCredentials {
	return frames{f.TransportCredentials.Clone(), f.rates}
}

// framed is a connection that looks at the frames it reads. One goroutine reads it.
type framed struct {
	net.Conn
	rates *rate.Limiter

	skip int // bytes until the next frame begins
	head [frameHead]byte
	have int // bytes of head
}

const frameHead = 9 // bytes: three of length, type, flags, four of stream

var errResets = errors.New("rpc: the address has reset too many streams")

// Read implements net.Conn.
func (c *framed) Read(p []byte) (int, error) {
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
		if http2.FrameType(c.head[3]) == http2.FrameRSTStream && !c.rates.Reset(c.RemoteAddr()) {
			return 0, errResets
		}
	}
	return n, err
}
