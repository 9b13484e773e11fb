package network

import (
	"context"
	"fmt"
	"io"
	"net"
	"path"
	"strconv"
	"sync"

	"google.golang.org/grpc"
	"google.golang.org/grpc/test/bufconn"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/troupe-dev/troupe/internal/grpcfailure"
	"github.com/troupe-dev/troupe/internal/rpc"
	"github.com/troupe-dev/troupe/test/simulation/schedule"
)

// bufferSize is how many bytes a connection holds between its ends.
const bufferSize = 256 << 10

// port is a port of a peer.
type port struct {
	*bufconn.Listener
	owner *Peer
	addr  net.Addr

	mu    sync.Mutex
	conns []net.Conn
}

// Addr implements net.Listener.
func (p *port) Addr() net.Addr { return p.addr }

// Accept implements net.Listener.
func (p *port) Accept() (net.Conn, error) {
	conn, err := p.Listener.Accept()
	if err == nil {
		p.mu.Lock()
		p.conns = append(p.conns, conn)
		p.mu.Unlock()
	}
	return conn, err
}

// closeConns closes the connections to the port, as happens when its process dies.
func (p *port) closeConns() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, c := range p.conns {
		_ = c.Close()
	}
	p.conns = nil
}

// open opens a port of a peer. An address ends with the number of the port, and 0 means any.
func (p *Peer) open(addr string) (net.Listener, error) {
	n := p.network
	_, number, err := net.SplitHostPort(addr)
	if err != nil {
		return nil, err
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	if number == "0" {
		n.nextPort++
		number = strconv.Itoa(n.nextPort)
	}
	at, err := strconv.Atoi(number)
	if err != nil {
		return nil, err
	}
	lis := &port{Listener: bufconn.Listen(bufferSize), owner: p, addr: &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: at}}
	n.ports[lis.addr.String()] = lis
	return lis, nil
}

// closePorts closes the ports of a peer and all connections to them.
func (n *Network) closePorts(p *Peer) {
	n.mu.Lock()
	var closed []*port
	for addr, lis := range n.ports {
		if lis.owner == p {
			closed = append(closed, lis)
			delete(n.ports, addr)
		}
	}
	n.mu.Unlock()
	for _, lis := range closed {
		_ = lis.Close()
		lis.closeConns()
	}
}

// Network returns what the process uses as its network. Calls to an address in aliases go to one of the addresses
// that the alias stands for, as behind a load balancer.
func (p *Peer) Network(aliases map[string][]string) rpc.Network {
	l := &links{peer: p, aliases: aliases, current: map[string]*port{}}
	return rpc.Network{OpenPort: p.open, DialOptions: []grpc.DialOption{
		grpc.WithContextDialer(l.dial),
		grpc.WithChainUnaryInterceptor(l.callUnary), grpc.WithChainStreamInterceptor(l.openStream),
	}}
}

// links are the connections of a peer.
type links struct {
	peer    *Peer
	aliases map[string][]string

	mu      sync.Mutex
	current map[string]*port // the port that an address leads to
	dials   int
}

func (l *links) dial(_ context.Context, addr string) (net.Conn, error) {
	n := l.peer.network
	if l.peer.isDead() {
		return nil, fmt.Errorf("%s has crashed", l.peer.id)
	}
	candidates := l.aliases[addr]
	if candidates == nil {
		candidates = []string{addr}
	}
	l.mu.Lock()
	l.dials++
	first := l.dials + len(l.peer.id)
	l.mu.Unlock()
	for i := range candidates {
		n.mu.Lock()
		lis := n.ports[candidates[(first+i)%len(candidates)]]
		n.mu.Unlock()
		if lis == nil {
			continue
		}
		if how, _ := n.obstacle(message{from: l.peer, to: lis.owner.name}); how == schedule.Partition {
			continue
		}
		conn, err := lis.Dial()
		if err != nil {
			continue
		}
		l.mu.Lock()
		l.current[addr] = lis
		l.mu.Unlock()
		return conn, nil
	}
	return nil, fmt.Errorf("nobody listens at %s", addr)
}

// target returns the name of the process that a connection leads to.
func (l *links) target(cc *grpc.ClientConn) string {
	l.mu.Lock()
	defer l.mu.Unlock()
	_, addr := path.Split(cc.Target())
	if lis := l.current[addr]; lis != nil {
		return lis.owner.name
	}
	return addr
}

func (l *links) callUnary(ctx context.Context, method string, req, reply any, cc *grpc.ClientConn, invoke grpc.UnaryInvoker, opts ...grpc.CallOption) error {
	if l.target(cc) == cc.Target() {
		cc.Connect()
	}
	err := l.peer.Call(ctx, l.target(cc), path.Base(method), sessionOf(req), func(ctx context.Context) error {
		proto.Reset(reply.(proto.Message))
		return invoke(ctx, method, req, reply, cc, opts...)
	})
	return grpcfailure.ToStatus(err)
}

func (l *links) openStream(ctx context.Context, desc *grpc.StreamDesc, cc *grpc.ClientConn, method string, open grpc.Streamer, opts ...grpc.CallOption) (
	grpc.ClientStream, error,
) {
	m := message{l.peer, l.target(cc), path.Base(method), ""}
	n := l.peer.network
	if err := n.travel(ctx, m, schedule.CrashAtRequest); err != nil {
		return nil, grpcfailure.ToStatus(err)
	}
	if n.take(m, schedule.LoseRequest) {
		return nil, grpcfailure.ToStatus(lostError(m, "the request was lost"))
	}
	ctx, cancel := context.WithCancel(ctx)
	context.AfterFunc(l.peer.ctx, cancel)
	s, err := open(ctx, desc, cc, method, opts...)
	if err != nil {
		cancel()
		return nil, err
	}
	return &stream{s, m, ctx, cancel}, nil
}

// stream is a stream whose messages pass the network.
type stream struct {
	grpc.ClientStream
	message message
	ctx     context.Context //nolint:containedctx // of the stream; cancel ends it
	cancel  context.CancelFunc
}

// SendMsg implements grpc.ClientStream.
func (s *stream) SendMsg(m any) error {
	if s.message.key == "" {
		s.message.key = sessionOf(m)
	}
	s.message.from.network.record(s.message, "→", "")
	return s.ClientStream.SendMsg(m)
}

// RecvMsg implements grpc.ClientStream.
func (s *stream) RecvMsg(m any) error {
	err := s.ClientStream.RecvMsg(m)
	if err == io.EOF { //nolint:errorlint // gRPC returns it unwrapped
		s.cancel()
		return err
	}
	if err != nil {
		s.cancel()
		return err
	}
	n := s.message.from.network
	if err := n.travel(s.ctx, s.message, schedule.CrashAtReply); err != nil {
		s.cancel()
		return grpcfailure.ToStatus(err)
	}
	if n.take(s.message, schedule.Cut) || n.take(s.message, schedule.LoseReply) {
		s.cancel()
		return grpcfailure.ToStatus(lostError(s.message, "the stream broke"))
	}
	return nil
}

// sessionOf returns the session that a request names, also inside its header.
func sessionOf(req any) string {
	m, ok := req.(proto.Message)
	if !ok {
		return ""
	}
	r := m.ProtoReflect()
	if f := r.Descriptor().Fields().ByName("session_id"); f != nil && f.Kind() == protoreflect.StringKind {
		return r.Get(f).String()
	}
	return ""
}
