package attack

import (
	"bytes"
	"crypto/tls"
	"net"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
)

// http2Peer is an HTTP/2 client that writes single frames.
type http2Peer struct {
	net.Conn
	*http2.Framer
	block bytes.Buffer
	coder *hpack.Encoder
}

// connect opens a connection and sends the HTTP/2 client preface.
func connect(t testing.TB, addr string, settings ...http2.Setting) *http2Peer {
	t.Helper()
	return newHTTP2Peer(t, dial(t, addr), settings...)
}

// dial connects from its own loopback address, which the good client does not use, because limits apply per
// address. On Linux every address in 127.0.0.0/8 is local.
func dial(t testing.TB, addr string) net.Conn {
	t.Helper()
	from := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.IPv4(127, 0, 0, 2)}}
	conn, err := from.DialContext(t.Context(), "tcp", addr)
	require.NoError(t, err)
	return conn
}

func newHTTP2Peer(t testing.TB, conn net.Conn, settings ...http2.Setting) *http2Peer {
	t.Helper()
	t.Cleanup(func() { _ = conn.Close() })
	require.NoError(t, conn.SetDeadline(time.Now().Add(waitTimeout)))
	_, err := conn.Write([]byte(http2.ClientPreface))
	require.NoError(t, err)
	p := &http2Peer{Conn: conn, Framer: http2.NewFramer(conn, conn)}
	p.ReadMetaHeaders = hpack.NewDecoder(4096, nil)
	p.coder = hpack.NewEncoder(&p.block)
	require.NoError(t, p.WriteSettings(settings...))
	return p
}

// connectTLS works like connect, over TLS with a certificate of the mesh.
func connectTLS(t testing.TB, addr string, config *tls.Config) *http2Peer {
	t.Helper()
	config.NextProtos = []string{"h2"}
	conn, err := tls.Dial("tcp", addr, config)
	require.NoError(t, err)
	return newHTTP2Peer(t, conn)
}

// headerBlock returns the encoded request headers of a call.
func (p *http2Peer) headerBlock(path string, more ...hpack.HeaderField) []byte {
	p.block.Reset()
	for _, f := range append([]hpack.HeaderField{
		{Name: ":method", Value: "POST"},
		{Name: ":scheme", Value: "http"},
		{Name: ":path", Value: path},
		{Name: ":authority", Value: "mesh"},
		{Name: "content-type", Value: "application/grpc"},
		{Name: "te", Value: "trailers"},
	}, more...) {
		_ = p.coder.WriteField(f) // writes to memory and cannot fail
	}
	return bytes.Clone(p.block.Bytes())
}

// openStream begins a call.
func (p *http2Peer) openStream(stream uint32, path string, more ...hpack.HeaderField) error {
	return p.WriteHeaders(http2.HeadersFrameParam{StreamID: stream, BlockFragment: p.headerBlock(path, more...), EndHeaders: true})
}

// grpcFrame returns a request with the length prefix that gRPC puts before each message.
func grpcFrame(body []byte) []byte {
	n := len(body)
	return append([]byte{0, byte(n >> 24), byte(n >> 16), byte(n >> 8), byte(n)}, body...)
}

// status reads until a stream ends and returns its grpc-status. It returns an empty string if the server closes
// the connection or resets the stream.
func (p *http2Peer) status(stream uint32) string {
	for {
		f, err := p.ReadFrame()
		if err != nil {
			return ""
		}
		switch f := f.(type) {
		case *http2.MetaHeadersFrame:
			for _, h := range f.Fields {
				if h.Name == "grpc-status" && f.StreamID == stream {
					return h.Value
				}
			}
		case *http2.RSTStreamFrame:
			if f.StreamID == stream {
				return ""
			}
		default:
		}
	}
}

// awaitGoAway reads until the server closes the connection. It returns the error code of the GOAWAY frame, and
// false if none arrived.
func (p *http2Peer) awaitGoAway() (code http2.ErrCode, told bool) {
	for {
		f, err := p.ReadFrame()
		if err != nil {
			return code, told
		}
		if g, ok := f.(*http2.GoAwayFrame); ok {
			code, told = g.ErrCode, true
		}
	}
}
