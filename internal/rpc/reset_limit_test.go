package rpc

import (
	"bytes"
	"net"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"

	"github.com/troupe-dev/troupe/internal/rate"
	troupev1 "github.com/troupe-dev/troupe/pkg/gen/troupe/v1"
)

// The server closes the connection of an address that resets too many streams. A new connection of that address is
// closed at its first reset. Other addresses are not affected.
func TestServer_ClosesConnectionsAfterTooManyResets(t *testing.T) {
	client, addr := startServerWithConfig(t, Config{Rates: rate.New(rate.Table{rate.Resets: {Rate: 0.001, Burst: 20}})}, &fakeSessions{get: returnSession}, nil)
	require.Equal(t, 20, resetUntilClosed(t, addr, 100))
	require.Zero(t, resetUntilClosed(t, addr, 100))
	_, err := client.GetSession(t.Context(), &troupev1.GetSessionRequest{SessionId: "s"})
	require.NoError(t, err)
}

// Resets are counted no matter how the frames are split over reads.
func TestResetCountingConn_CountsResetsInReadsOfAnySize(t *testing.T) {
	var sent bytes.Buffer
	sent.WriteString(http2.ClientPreface)
	f := http2.NewFramer(&sent, nil)
	require.NoError(t, f.WriteData(1, false, bytes.Repeat([]byte{byte(http2.FrameRSTStream)}, 100)))
	require.NoError(t, f.WriteRSTStream(1, http2.ErrCodeCancel))
	require.NoError(t, f.WriteSettings())
	require.NoError(t, f.WriteRSTStream(3, http2.ErrCodeNo))
	for size := 1; size <= sent.Len(); size++ {
		conn := &resetCountingConn{
			Conn: &fakeConn{text: sent.Bytes()}, rates: rate.New(rate.Table{rate.Resets: {Rate: 0.001, Burst: 1}}),
			skipBytes: len(http2.ClientPreface),
		}
		read := 0
		for {
			n, err := conn.Read(make([]byte, size))
			if read += n; err != nil {
				require.ErrorIs(t, err, errTooManyResets, "pieces of %d", size)
				break
			}
			require.Less(t, read, sent.Len(), "pieces of %d", size)
		}
	}
}

// fakeConn is a connection from which only a given text can be read.
type fakeConn struct {
	net.Conn
	text []byte
}

func (f *fakeConn) Read(p []byte) (int, error) {
	n := copy(p, f.text)
	f.text = f.text[n:]
	return n, nil
}

func (f *fakeConn) RemoteAddr() net.Addr { return &net.TCPAddr{IP: net.IPv4(192, 0, 2, 1), Port: 1} }

// resetUntilClosed opens streams and resets each at once. It returns how many it could reset before the server
// closed the connection.
func resetUntilClosed(t *testing.T, addr string, most int) int {
	t.Helper()
	conn, err := net.Dial("tcp", addr)
	require.NoError(t, err)
	defer func() { require.NoError(t, conn.Close()) }()
	require.NoError(t, conn.SetDeadline(time.Now().Add(10*time.Second)))
	_, err = conn.Write([]byte(http2.ClientPreface))
	require.NoError(t, err)
	f := http2.NewFramer(conn, conn)
	require.True(t, acknowledgesSettings(f))
	var head bytes.Buffer
	coder := hpack.NewEncoder(&head)
	for n := range most {
		head.Reset()
		for _, field := range [][2]string{
			{":method", "POST"},
			{":scheme", "http"},
			{":path", troupev1.SessionService_GetSession_FullMethodName},
			{":authority", "a"},
			{"content-type", "application/grpc"},
			{"te", "trailers"},
		} {
			require.NoError(t, coder.WriteField(hpack.HeaderField{Name: field[0], Value: field[1]}))
		}
		stream := uint32(2*n + 1)
		if f.WriteHeaders(http2.HeadersFrameParam{StreamID: stream, BlockFragment: head.Bytes(), EndHeaders: true}) != nil ||
			f.WriteRSTStream(stream, http2.ErrCodeCancel) != nil || !acknowledgesSettings(f) {
			return n
		}
	}
	return most
}

// acknowledgesSettings reports whether the server still answers. It sends a settings frame, because the server
// would treat many pings as a flood.
func acknowledgesSettings(f *http2.Framer) bool {
	if f.WriteSettings() != nil {
		return false
	}
	for {
		frame, err := f.ReadFrame()
		if err != nil {
			return false
		}
		if s, ok := frame.(*http2.SettingsFrame); ok && s.IsAck() {
			return true
		}
	}
}
