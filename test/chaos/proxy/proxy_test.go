package proxy_test

import (
	"bufio"
	"net"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/troupe-dev/troupe/test/chaos/proxy"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// echoServer is a server that repeats each line and records the lines that it received.
type echoServer struct {
	net.Listener
	mu       sync.Mutex
	received []string
}

func (e *echoServer) lines() []string {
	e.mu.Lock()
	defer e.mu.Unlock()
	return append([]string(nil), e.received...)
}

func serve(t *testing.T) *echoServer {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	e := &echoServer{Listener: listener}
	var running sync.WaitGroup
	running.Go(func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			running.Go(func() {
				defer conn.Close()
				lines := bufio.NewScanner(conn)
				for lines.Scan() {
					e.mu.Lock()
					e.received = append(e.received, lines.Text())
					e.mu.Unlock()
					_, _ = conn.Write([]byte(lines.Text() + "\n"))
				}
			})
		}
	})
	t.Cleanup(func() { _ = listener.Close(); running.Wait() })
	return e
}

func dialTimeout(t *testing.T, addr string) (ask func(string) (string, error)) {
	t.Helper()
	conn, err := net.Dial("tcp", addr)
	require.NoError(t, err)
	t.Cleanup(func() { _ = conn.Close() })
	reader := bufio.NewReader(conn)
	return func(line string) (string, error) {
		if _, err := conn.Write([]byte(line + "\n")); err != nil {
			return "", err
		}
		return reader.ReadString('\n')
	}
}

func TestProxy_DropsTheReplyButNotTheRequest(t *testing.T) {
	server := serve(t)
	p, err := proxy.New(server.Addr().String())
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, p.Close()) })

	ask := dialTimeout(t, p.Addr())
	reply, err := ask("one")
	require.NoError(t, err)
	require.Equal(t, "one\n", reply)

	p.DropNextReply()
	_, err = ask("two")
	require.Error(t, err, "the reply is lost")
	require.Equal(t, []string{"one", "two"}, server.lines(), "and the request was heard")
	require.Equal(t, 1, p.DroppedReplies())

	reply, err = dialTimeout(t, p.Addr())("three")
	require.NoError(t, err, "a cut is for one request")
	require.Equal(t, "three\n", reply)
}

// When no server listens at the target, the proxy closes the connections of its callers.
func TestProxy_ClosesConnectionsWithoutAServer(t *testing.T) {
	p, err := proxy.New("127.0.0.1:1")
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, p.Close()) })
	_, err = dialTimeout(t, p.Addr())("one")
	require.Error(t, err)
}
