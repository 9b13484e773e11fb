// Package mesh runs a whole mesh in one testing/synctest bubble: orchestrators, memory services and workers, each with
// the code of the real program. Their network, their stores and their registry belong to the test.
package mesh

import (
	"context"
	"embed"
	"fmt"
	"io/fs"
	"sync"
	"time"

	"go.uber.org/zap"
	"google.golang.org/grpc"

	"github.com/troupe-dev/troupe/internal/registry"
	"github.com/troupe-dev/troupe/internal/retry"
	"github.com/troupe-dev/troupe/internal/rpc"
	"github.com/troupe-dev/troupe/internal/telemetry"
	"github.com/troupe-dev/troupe/internal/worker"
	"github.com/troupe-dev/troupe/pkg/agent"
	memory "github.com/troupe-dev/troupe/services/memory/app"
	orchestrator "github.com/troupe-dev/troupe/services/orchestrator/app"
	"github.com/troupe-dev/troupe/test/chaos/ledger"
	"github.com/troupe-dev/troupe/test/chaos/scriptedagent"
	"github.com/troupe-dev/troupe/test/simulation/helper"
	"github.com/troupe-dev/troupe/test/simulation/network"
	"github.com/troupe-dev/troupe/test/simulation/schedule"
	"github.com/troupe-dev/troupe/test/simulation/stores"
)

// Mesh is a running mesh. It is safe for concurrent use.
type Mesh struct {
	Network  *network.Network
	Ledger   ledger.Book // of the scripted agent
	Payments ledger.Book // of the helper
	Tier     *stores.Tier

	log       *zap.Logger
	traces    *orchestrator.TracesInRAM
	directory *stores.Directory
	clients   *network.Peer

	life    context.Context //nolint:containedctx // of the mesh; Stop ends it
	end     context.CancelFunc
	running sync.WaitGroup

	mu      sync.Mutex
	stopped bool
	places  map[string]*place
	errs    []error
}

// place is where one incarnation of a process runs after the other.
type place struct {
	starts int
	peer   *network.Peer
	stop   context.CancelFunc
}

// Addresses of the servers. Workers have any address, because each registers its own.
var memoryAddrs, orchestratorAddrs = addresses(7401, schedule.Memories), addresses(7501, schedule.Orchestrators)

// anyMemory is the address of the load balancer in front of the memory services.
const anyMemory = "127.0.0.1:7400"

func addresses(first, n int) (all []string) {
	for i := range n {
		all = append(all, fmt.Sprintf("127.0.0.1:%d", first+i))
	}
	return all
}

// Start starts all processes. It must be called in the bubble.
func Start(s schedule.Schedule, log *zap.Logger) *Mesh {
	m := &Mesh{log: log, directory: stores.NewDirectory(), places: map[string]*place{}}
	m.life, m.end = context.WithCancel(context.Background())
	m.Network = network.New(s, m.crash)
	m.Tier, m.traces = stores.NewTier(m.Network), orchestrator.NewTracesInRAM(stores.Clock(m.Network, schedule.TraceStore))
	m.clients = m.Network.Join(schedule.Clients, schedule.Clients)
	m.running.Go(func() { m.directory.ExpireUntil(m.life) })
	m.running.Go(m.rollBackWhenDue)
	for n := range schedule.Memories {
		m.start(schedule.Memory(n + 1))
	}
	for n := range schedule.Workers {
		m.start(schedule.Worker(n + 1))
	}
	for n := range schedule.Helpers {
		m.start(schedule.Helper(n + 1))
	}
	for n := range schedule.Orchestrators {
		m.start(schedule.Orchestrator(n + 1))
	}
	return m
}

// rollBackWhenDue lets the store lose writes when the schedule says so.
func (m *Mesh) rollBackWhenDue() {
	for retry.Sleep(m.life, 10*time.Millisecond) == nil {
		for _, f := range m.Network.TakeDue(schedule.Rollback) {
			m.Tier.RollBack(f.Writes)
		}
	}
}

// start starts the next incarnation of a process.
func (m *Mesh) start(name string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.stopped {
		return
	}
	p := m.places[name]
	if p == nil {
		p = &place{}
		m.places[name] = p
	}
	p.starts++
	id := name
	if name[0] == 'w' || name[0] == 'h' {
		id = fmt.Sprintf("%s.%d", name, p.starts)
	}
	p.peer = m.Network.Join(name, id)
	ctx, stop := context.WithCancel(p.peer.Context())
	p.stop = stop
	peer := p.peer
	m.running.Go(func() {
		if err := m.run(ctx, peer, name); err != nil && ctx.Err() == nil {
			m.mu.Lock()
			defer m.mu.Unlock()
			m.errs = append(m.errs, fmt.Errorf("%s ended by itself: %w", id, err))
		}
	})
}

// run runs an incarnation until ctx ends.
func (m *Mesh) run(ctx context.Context, peer *network.Peer, name string) error {
	service, err := m.build(peer, name)
	if err != nil {
		return err
	}
	return service.Run(ctx, func() {})
}

type service interface {
	Run(ctx context.Context, ready func()) error
}

const anyPort = "127.0.0.1:0"

// TurnTimeout is the timeout of every turn.
const TurnTimeout = 2 * time.Minute

// build creates a process as its program does.
func (m *Mesh) build(peer *network.Peer, name string) (service, error) {
	t := telemetry.FromLogger(m.log.Named(peer.ID()))
	net := peer.Network(map[string][]string{anyMemory: memoryAddrs})
	directory := m.directory.For(peer)
	var n int
	switch name[0] {
	case 'm':
		_, _ = fmt.Sscanf(name, "memory-%d", &n) // names are made here
		return memory.NewIn(memory.Environment{Network: net, Store: m.Tier.For(peer), DesiredStates: directory}, t,
			memory.Config{GRPCAddr: memoryAddrs[n-1], HTTPAddr: anyPort, Grace: time.Second})
	case 'o':
		_, _ = fmt.Sscanf(name, "orchestrator-%d", &n)
		return m.buildOrchestrator(peer, t, net, directory, orchestratorAddrs[n-1])
	default:
		a, err := m.buildAgent(peer, name)
		if err != nil {
			return nil, err
		}
		return worker.NewIn(worker.Environment{Network: net, Registrar: directory}, t, worker.Config{
			GRPCAddr: anyPort, HTTPAddr: anyPort, InstanceID: peer.ID(), Etcd: []string{"none"}, Memory: anyMemory, Drain: time.Second,
		}, a)
	}
}

// buildAgent creates the agent of a worker.
func (m *Mesh) buildAgent(peer *network.Peer, name string) (*agent.Agent, error) {
	if name[0] == 'h' {
		return helper.New(poster{peer, &m.Payments})
	}
	return scriptedagent.New(poster{peer, &m.Ledger})
}

//go:embed agents/workflows.yaml
var workflows embed.FS

func (m *Mesh) buildOrchestrator(peer *network.Peer, t *telemetry.Telemetry, net rpc.Network, directory registry.Registry, addr string) (service, error) {
	traces := m.traces.With(func(ctx context.Context, op, session string, call func() error) error {
		return peer.Call(ctx, schedule.TraceStore, op, session, func(context.Context) error { return call() })
	})
	files, err := fs.Sub(workflows, "agents")
	if err != nil {
		return nil, err
	}
	return orchestrator.NewIn(orchestrator.Environment{Network: net, Traces: traces, Registry: directory}, t, orchestrator.Config{
		HTTPAddr: anyPort, Workflow: "one", InstanceID: peer.ID(), Timeout: TurnTimeout, Drain: 100 * time.Millisecond,
		Port:      orchestrator.PortConfig{GRPCAddr: addr},
		Stores:    orchestrator.StoresConfig{Memory: anyMemory, TraceRetention: 24 * time.Hour},
		Discovery: orchestrator.DiscoveryConfig{RouteWait: 12 * time.Second}, // a thawed orchestrator considers all workers unresponsive for 5 s
		Admission: orchestrator.AdmissionConfig{MaxQueueTime: 5 * time.Second},
	}, files)
}

// poster posts calls of tools and models to the ledger.
type poster struct {
	peer *network.Peer
	book *ledger.Book
}

// Post implements scriptedagent.Ledger.
func (p poster) Post(ctx context.Context, c ledger.Call) (receipt string, err error) {
	c.Worker = p.peer.ID()
	err = p.peer.Call(ctx, schedule.Ledger, string(c.Kind), c.Mark, func(context.Context) error {
		receipt = p.book.Record(c)
		return nil
	})
	return receipt, err
}

// crash ends a process without any notice, and starts it again after some time.
func (m *Mesh) crash(name string, down time.Duration) {
	m.mu.Lock()
	defer m.mu.Unlock()
	p := m.places[name]
	if p == nil || p.peer.Context().Err() != nil || m.stopped {
		return
	}
	p.peer.Crash()
	p.stop()
	m.running.Go(func() {
		if retry.Sleep(m.life, down) == nil {
			m.start(name)
		}
	})
}

// DialMemory returns a connection to the memory services.
func (m *Mesh) DialMemory() (*grpc.ClientConn, error) {
	return m.clients.Network(map[string][]string{anyMemory: memoryAddrs}).Dial(anyMemory, telemetry.Discard(), "troupe.v1.MemoryService")
}

// DialOrchestrators returns a connection to each orchestrator.
func (m *Mesh) DialOrchestrators() (conns []*grpc.ClientConn, err error) {
	for _, addr := range orchestratorAddrs {
		conn, err := m.clients.Network(nil).Dial(addr, telemetry.Discard())
		if err != nil {
			return nil, err
		}
		conns = append(conns, conn)
	}
	return conns, nil
}

// Stop stops all processes and returns the errors of those that ended by themselves. Each has as long as it needs.
func (m *Mesh) Stop() []error {
	m.mu.Lock()
	m.stopped = true
	m.end()
	for _, p := range m.places {
		p.stop()
	}
	m.mu.Unlock()
	m.running.Wait()
	m.clients.Crash()
	for _, p := range m.places {
		p.peer.Crash()
	}
	return m.errs
}
