// Package proxy provides a TCP proxy that drops replies. It forwards a request to the server, drops the reply, and
// closes the connection. The caller cannot know whether its request was carried out.
package proxy

import (
	"errors"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"time"
)

// Times of a cut.
const (
	dropTime     = 20 * time.Millisecond // from the first byte of the dropped reply
	replyTimeout = time.Second           // without a reply of the server
	dialTimeout  = time.Second
)

// Proxy forwards connections to one address. It is safe for concurrent use.
type Proxy struct {
	listener       net.Listener
	target         string
	pendingDrops   atomic.Int64 // replies to drop
	droppedReplies atomic.Int64 // replies dropped so far

	running   sync.WaitGroup
	mu        sync.Mutex
	openConns map[net.Conn]bool
	closed    bool
	severed   bool
}

// New starts a proxy on a free loopback port. The caller closes it.
func New(target string) (*Proxy, error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	p := &Proxy{listener: listener, target: target, openConns: map[net.Conn]bool{}}
	p.running.Go(p.accept)
	return p, nil
}

// Addr returns the address of the proxy, host:port.
func (p *Proxy) Addr() string { return p.listener.Addr().String() }

// DropNextReply drops the reply to the next request, on any connection.
func (p *Proxy) DropNextReply() { p.pendingDrops.Add(1) }

// DroppedReplies returns how many replies were dropped so far.
func (p *Proxy) DroppedReplies() int { return int(p.droppedReplies.Load()) }

// Sever closes all connections and accepts none until heal is called.
func (p *Proxy) Sever() (heal func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.severed = true
	for conn := range p.openConns {
		_ = conn.Close()
	}
	return func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.severed = false
	}
}

// Close closes all connections and stops the proxy.
func (p *Proxy) Close() error {
	p.mu.Lock()
	p.closed = true
	for conn := range p.openConns {
		_ = conn.Close()
	}
	p.mu.Unlock()
	err := p.listener.Close()
	p.running.Wait()
	return err
}

func (p *Proxy) accept() {
	for {
		conn, err := p.listener.Accept()
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err == nil {
			p.running.Go(func() { p.serve(conn) })
		}
	}
}

// serve forwards one connection until either side closes it or a reply is dropped.
func (p *Proxy) serve(caller net.Conn) {
	defer p.closeConn(caller)
	server, err := net.DialTimeout("tcp", p.target, dialTimeout)
	if err != nil {
		_ = caller.Close() // as if the server itself had rejected it
		return
	}
	defer p.closeConn(server)
	if !p.track(caller, server) {
		return
	}
	l := &connPair{proxy: p, caller: caller, server: server}
	done := make(chan struct{})
	go func() { defer close(done); l.forwardReplies() }()
	l.forwardRequests()
	<-done
}

func (p *Proxy) track(conns ...net.Conn) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, c := range conns {
		p.openConns[c] = true
	}
	return !p.closed && !p.severed
}

func (p *Proxy) closeConn(conn net.Conn) {
	_ = conn.Close()
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.openConns, conn)
}

// takePendingDrop takes one of the requested drops and returns false if none is pending.
func (p *Proxy) takePendingDrop() bool {
	for {
		n := p.pendingDrops.Load()
		if n == 0 {
			return false
		}
		if p.pendingDrops.CompareAndSwap(n, n-1) {
			return true
		}
	}
}

// connPair is one connection of a caller with the matching connection to the server.
type connPair struct {
	proxy          *Proxy
	caller, server net.Conn
	dropsReplies   atomic.Bool // replies are dropped from now on
}

// forwardRequests forwards what the caller sends. If a drop is pending, it starts to drop replies before it
// forwards the request, so that no reply gets through.
func (c *connPair) forwardRequests() {
	defer c.close()
	buffer := make([]byte, 32<<10)
	for {
		n, err := c.caller.Read(buffer)
		if n > 0 {
			if !c.dropsReplies.Load() && c.proxy.takePendingDrop() {
				c.dropsReplies.Store(true)
				_ = c.server.SetReadDeadline(time.Now().Add(replyTimeout))
			}
			if _, err := c.server.Write(buffer[:n]); err != nil {
				return
			}
		}
		if err != nil {
			return
		}
	}
}

func (c *connPair) forwardReplies() {
	defer c.close()
	buffer := make([]byte, 32<<10)
	for {
		n, err := c.server.Read(buffer)
		if c.dropsReplies.Load() {
			c.dropReply()
			return
		}
		if n > 0 {
			if _, err := c.caller.Write(buffer[:n]); err != nil {
				return
			}
		}
		if err != nil {
			return
		}
	}
}

// dropReply drops the reply. It waits a short time, because a reply may arrive in pieces.
func (c *connPair) dropReply() {
	c.proxy.droppedReplies.Add(1)
	_ = c.server.SetReadDeadline(time.Now().Add(dropTime))
	_, _ = io.Copy(io.Discard, c.server)
}

// close closes both connections. It is called when either direction ends.
func (c *connPair) close() {
	_ = c.caller.Close()
	_ = c.server.Close()
}
