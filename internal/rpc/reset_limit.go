package rpc

import (
	"errors"
	"net"

	"golang.org/x/net/http2"
	"google.golang.org/grpc/credentials"

	"github.com/troupe-dev/troupe/internal/rate"
)

// resetLimitingCredentials wrap each connection so that it is closed when its address resets too many streams. The
// gRPC library serves a stream that is reset at once like any other, and does not report the reset (guarantee
// S20).
type resetLimitingCredentials struct {
	credentials.TransportCredentials
	rates *rate.Limiter
}

// ServerHandshake implements credentials.TransportCredentials.
func (r resetLimitingCredentials) ServerHandshake(raw net.Conn) (net.Conn, credentials.AuthInfo, error) {
	conn, info, err := r.TransportCredentials.ServerHandshake(raw)
	if err != nil {
		return nil, nil, err
	}
	return &resetCountingConn{Conn: conn, rates: r.rates, skipBytes: len(http2.ClientPreface)}, info, nil
}

// Clone implements credentials.TransportCredentials.
func (r resetLimitingCredentials) Clone() credentials.TransportCredentials {
	return resetLimitingCredentials{r.TransportCredentials.Clone(), r.rates}
}

// resetCountingConn is a connection that counts the RST_STREAM frames that it reads. Only one goroutine may read
// it.
type resetCountingConn struct {
	net.Conn
	rates *rate.Limiter

	skipBytes   int // number of bytes until the next frame begins
	header      [frameHeaderSize]byte
	headerBytes int // number of bytes read into the header
}

const frameHeaderSize = 9 // 3 bytes of length, 1 of type, 1 of flags, 4 of the stream id

var errTooManyResets = errors.New("rpc: the address has reset too many streams")

// Read implements net.Conn.
func (c *resetCountingConn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	for rest := p[:n]; len(rest) > 0; {
		if c.skipBytes > 0 {
			passed := min(c.skipBytes, len(rest))
			c.skipBytes, rest = c.skipBytes-passed, rest[passed:]
			continue
		}
		taken := copy(c.header[c.headerBytes:], rest)
		c.headerBytes, rest = c.headerBytes+taken, rest[taken:]
		if c.headerBytes < frameHeaderSize {
			continue
		}
		c.headerBytes, c.skipBytes = 0, int(c.header[0])<<16|int(c.header[1])<<8|int(c.header[2])
		if http2.FrameType(c.header[3]) == http2.FrameRSTStream && !c.rates.CountReset(c.RemoteAddr()) {
			return 0, errTooManyResets
		}
	}
	return n, err
}
