package egress_test

import (
	"context"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	"golang.org/x/net/dns/dnsmessage"

	"github.com/troupe-dev/troupe/internal/egress"
	"github.com/troupe-dev/troupe/test/loopback"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// The test network is on loopback. The client under test may treat 127.0.0.2 as a public server. All other
// addresses count as inner ones.
const (
	publicAddress = "127.0.0.2"
	innerAddress  = "127.0.0.1"
)

// testNetwork consists of an allowed server, a canary server that must not be reached, and a DNS resolver.
type testNetwork struct {
	port           int // port of both servers
	canaryRequests atomic.Int64
	publicRequests atomic.Int64 // requests to the allowed server
	resolver       *net.Resolver

	mu          sync.Mutex
	addresses   map[string][]string // by name: each query takes the next element, which lists addresses separated by spaces
	queryCounts map[string]int
}

func newTestNetwork(t *testing.T, handler http.Handler) *testNetwork {
	t.Helper()
	w := &testNetwork{addresses: map[string][]string{}, queryCounts: map[string]int{}}
	listeners := listenOnOnePort(t, publicAddress, innerAddress, "::1")
	w.port = listeners[0].Addr().(*net.TCPAddr).Port
	serve(t, listeners[0], http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		w.publicRequests.Add(1)
		handler.ServeHTTP(rw, r)
	}))
	trap := http.HandlerFunc(func(rw http.ResponseWriter, _ *http.Request) {
		w.canaryRequests.Add(1)
		_, _ = rw.Write([]byte("the secret"))
	})
	for _, lis := range listeners[1:] {
		serve(t, lis, trap)
	}
	w.serveDNS(t)
	w.setAddresses("allowed.test", publicAddress)
	return w
}

// listenOnOnePort listens on several addresses with the same port number.
func listenOnOnePort(t *testing.T, hosts ...string) []net.Listener {
	t.Helper()
	for {
		_, port, err := net.SplitHostPort(loopback.Address(t))
		require.NoError(t, err)
		var listeners []net.Listener
		for _, host := range hosts {
			if lis, err := net.Listen("tcp", net.JoinHostPort(host, port)); err == nil {
				listeners = append(listeners, lis)
			}
		}
		if len(listeners) == len(hosts) {
			return listeners
		}
		for _, lis := range listeners { // one of the addresses uses the port already
			require.NoError(t, lis.Close())
		}
	}
}

// serve serves HTTP on a listener until the test ends.
func serve(t *testing.T, lis net.Listener, handler http.Handler) {
	t.Helper()
	server := httptest.NewUnstartedServer(handler)
	_ = server.Listener.Close()
	server.Listener = lis
	server.Start()
	t.Cleanup(server.Close)
}

// setAddresses makes a name resolve to all of the addresses at once.
func (tn *testNetwork) setAddresses(name string, addresses ...string) {
	tn.mu.Lock()
	defer tn.mu.Unlock()
	tn.addresses[name] = []string{strings.Join(addresses, " ")}
}

// alternateAddresses makes a name resolve to the addresses in turn, one for each query.
func (tn *testNetwork) alternateAddresses(name string, addresses ...string) {
	tn.mu.Lock()
	defer tn.mu.Unlock()
	tn.addresses[name] = addresses
}

func (tn *testNetwork) serveDNS(t *testing.T) {
	conn, err := net.ListenPacket("udp", "127.0.0.1:0")
	require.NoError(t, err)
	var serving sync.WaitGroup
	serving.Go(func() {
		packet := make([]byte, 1500)
		for {
			n, from, err := conn.ReadFrom(packet)
			if err != nil {
				return
			}
			if reply := tn.answerDNS(packet[:n]); reply != nil {
				_, _ = conn.WriteTo(reply, from)
			}
		}
	})
	t.Cleanup(func() {
		_ = conn.Close()
		serving.Wait()
	})
	tn.resolver = &net.Resolver{PreferGo: true, Dial: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "udp", conn.LocalAddr().String())
	}}
}

func (tn *testNetwork) answerDNS(packet []byte) []byte {
	var m dnsmessage.Message
	if m.Unpack(packet) != nil || len(m.Questions) != 1 {
		return nil
	}
	q := m.Questions[0]
	name := strings.TrimSuffix(strings.ToLower(q.Name.String()), ".")
	m.Response, m.Authoritative, m.Answers, m.Additionals = true, true, nil, nil

	tn.mu.Lock()
	defer tn.mu.Unlock()
	turns, ok := tn.addresses[name]
	if !ok {
		m.RCode = dnsmessage.RCodeNameError
		reply, _ := m.Pack()
		return reply
	}
	if q.Type == dnsmessage.TypeA {
		tn.queryCounts[name]++
	}
	for address := range strings.FieldsSeq(turns[max(tn.queryCounts[name]-1, 0)%len(turns)]) {
		a := netip.MustParseAddr(address)
		header := dnsmessage.ResourceHeader{Name: q.Name, Class: dnsmessage.ClassINET, Type: q.Type}
		switch {
		case q.Type == dnsmessage.TypeA && a.Is4():
			m.Answers = append(m.Answers, dnsmessage.Resource{Header: header, Body: &dnsmessage.AResource{A: a.As4()}})
		case q.Type == dnsmessage.TypeAAAA && a.Is6():
			m.Answers = append(m.Answers, dnsmessage.Resource{Header: header, Body: &dnsmessage.AAAAResource{AAAA: a.As16()}})
		}
	}
	reply, _ := m.Pack()
	return reply
}

// restrictedClient returns a client that may reach every host, without TLS and on the servers' ports. Only the
// rules for addresses and for the form of URLs keep it from the canary.
func (tn *testNetwork) restrictedClient(t *testing.T) *http.Client {
	t.Helper()
	client, err := egress.New(egress.Config{
		Hosts: []string{"*"}, PlainHTTP: []string{"*"}, Ports: []int{tn.port},
		AllowInnerAddresses: []netip.Prefix{netip.MustParsePrefix(publicAddress + "/32")},
		Timeout:             5 * time.Second, Resolver: tn.resolver,
	})
	require.NoError(t, err)
	t.Cleanup(client.CloseIdleConnections)
	return client
}

// naiveClient returns a client without the rules of package egress.
func (tn *testNetwork) naiveClient(t *testing.T) *http.Client {
	t.Helper()
	transport := &http.Transport{DialContext: (&net.Dialer{Resolver: tn.resolver, Timeout: 200 * time.Millisecond}).DialContext}
	t.Cleanup(transport.CloseIdleConnections)
	return &http.Client{Transport: transport, Timeout: time.Second}
}
