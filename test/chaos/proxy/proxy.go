// Package proxy is a TCP proxy that drops replies: it forwards a request to the server, drops the reply, and
// closes the connection. The caller cannot know that its request was carried out.
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
	swallow = 20 * time.Millisecond // from the first byte of the dropped reply
	giveUp  = time.Second           // without a reply of the server
	dial    = time.Second
)

// Proxy forwards connections to one address. Safe for concurrent use.
type Proxy struct {
	listener    net.Listener
	target      string
	pendingCuts atomic.Int64 // cuts to come
	cuts        atomic.Int64 // cuts so far

	running sync.WaitGroup
	mu      sync.Mutex
	open    map[net.Conn]bool
	closed  bool
	severed bool
}

// New starts a proxy on a free loopback port. The caller closes it.
func New(target string) (*Proxy, error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	p := &Proxy{listener: listener, target: target, open: map[net.Conn]bool{}}
	p.running.Go(p.accept)
	return p, nil
}

// Addr returns the address of the proxy, host:port.
func (p *Proxy) Addr() string { return p.listener.Addr().String() }

// Cut drops the reply to the next request, on whichever connection.
func (p *Proxy) Cut() { p.pendingCuts.Add(1) }

// Cuts returns how many replies were dropped.
func (p *Proxy) Cuts() int { return int(p.cuts.Load()) }

// Sever closes all connections and accepts none, until heal.
func (p *Proxy) Sever() (heal func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.severed = true
	for conn := range p.open {
		_ = conn.Close()
	}
	return func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.severed = false
	}
}

// Close ends all connections and the proxy.
func (p *Proxy) Close() error {
	p.mu.Lock()
	p.closed = true
	for conn := range p.open {
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

// serve forwards one connection until either side ends it, or it is cut.
func (p *Proxy) serve(caller net.Conn) {
	defer p.untrack(caller)
	server, err := net.DialTimeout("tcp", p.target, dial)
	if err != nil {
		_ = caller.Close() // as if the server itself had rejected it
		return
	}
	defer p.untrack(server)
	if !p.track(caller, server) {
		return
	}
	l := &link{proxy: p, caller: caller, server: server}
	done := make(chan struct{})
	go func() { defer close(done); l.forwardReplies() }()
	l.forwardRequests()
	<-done
}

func (p *Proxy) track(conns ...net.Conn) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, c := range conns {
		p.open[c] = true
	}
	return !p.closed && !p.severed
}

func (p *Proxy) untrack(conn net.Conn) {
	_ = conn.Close()
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.open, conn)
}

// takeCut takes one of the pending cuts, if there is one.
func (p *Proxy) takeCut() bool {
	for {
		n := p.pendingCuts.Load()
		if n == 0 {
			return false
		}
		if p.pendingCuts.CompareAndSwap(n, n-1) {
			return true
		}
	}
}

// link is one connection with both its sides.
type link struct {
	proxy          *Proxy
	caller, server net.Conn
	cut            atomic.Bool // replies are swallowed from here on
}

// forwardRequests forwards what the caller sends. If a cut is pending, it starts to drop replies before it forwards
// the request, so that none slips through.
func (l *link) forwardRequests() {
	defer l.close()
	buffer := make([]byte, 32<<10)
	for {
		n, err := l.caller.Read(buffer)
		if n > 0 {
			if !l.cut.Load() && l.proxy.takeCut() {
				l.cut.Store(true)
				_ = l.server.SetReadDeadline(time.Now().Add(giveUp))
			}
			if _, err := l.server.Write(buffer[:n]); err != nil {
				return
			}
		}
		if err != nil {
			return
		}
	}
}

func (l *link) forwardReplies() {
	defer l.close()
	buffer := make([]byte, 32<<10)
	for {
		n, err := l.server.Read(buffer)
		if l.cut.Load() {
			l.dropReply()
			return
		}
		if n > 0 {
			if _, err := l.caller.Write(buffer[:n]); err != nil {
				return
			}
		}
		if err != nil {
			return
		}
	}
}

// dropReply drops the reply, and waits a little, because a reply may arrive in pieces.
func (l *link) dropReply() {
	l.proxy.cuts.Add(1)
	_ = l.server.SetReadDeadline(time.Now().Add(swallow))
	_, _ = io.Copy(io.Discard, l.server)
}

// close closes both sides; either direction ends the link.
func (l *link) close() {
	_ = l.caller.Close()
	_ = l.server.Close()
}
