// Package network is the network of a simulated mesh. Every message between two processes, and between a process and
// a store, passes it. It delays each message by an amount that the seed decides, and injects the faults of a
// schedule.
//
// Time is the time of a testing/synctest bubble. It only passes while every goroutine waits, so the order of messages
// follows from their delays.
package network

import (
	"context"
	"fmt"
	"hash/fnv"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/troupe-dev/troupe/internal/retry"
	"github.com/troupe-dev/troupe/pkg/failure"
	"github.com/troupe-dev/troupe/test/simulation/schedule"
)

// Network delivers messages. It is safe for concurrent use.
type Network struct {
	seed    uint64
	started time.Time
	onCrash func(process string, down time.Duration)

	mu       sync.Mutex
	healed   bool
	faults   []*armedFault
	counts   map[string]int // messages so far, by identity
	peers    map[string]*Peer
	ports    map[string]*port
	nextPort int
	story    []Entry
}

// armedFault is a fault that may hit messages.
type armedFault struct {
	schedule.Fault
	hasHit bool
}

// New returns a network with the faults of a schedule. onCrash is called when a process crashes.
func New(s schedule.Schedule, onCrash func(process string, down time.Duration)) *Network {
	n := &Network{
		seed: s.Seed, started: time.Now(), onCrash: onCrash, counts: map[string]int{}, peers: map[string]*Peer{},
		ports: map[string]*port{}, nextPort: 20000,
	}
	for _, f := range s.Faults {
		n.faults = append(n.faults, &armedFault{Fault: f})
	}
	return n
}

// Now returns the time since the start.
func (n *Network) Now() time.Duration { return time.Since(n.started) }

// Heal ends all faults. No fault begins afterwards.
func (n *Network) Heal() {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.healed = true
	n.tell("", "", "faults end", "")
}

// Peer is one incarnation of a process in the network. It is safe for concurrent use.
type Peer struct {
	network *Network
	name    string          // place of the process
	id      string          // id of the incarnation
	ctx     context.Context //nolint:containedctx // of the process; a crash ends it
	die     context.CancelFunc
}

// Join adds an incarnation of a process to the network.
func (n *Network) Join(name, id string) *Peer {
	ctx, die := context.WithCancel(context.Background())
	p := &Peer{n, name, id, ctx, die}
	n.mu.Lock()
	defer n.mu.Unlock()
	n.peers[name] = p
	n.tell(id, "", "starts", "")
	return p
}

// ID returns the id of the incarnation.
func (p *Peer) ID() string { return p.id }

// Context returns a context that ends when the incarnation crashes.
func (p *Peer) Context() context.Context { return p.ctx }

// Crash ends the incarnation. None of its messages arrives any more.
func (p *Peer) Crash() {
	p.die()
	p.network.closePorts(p)
}

func (p *Peer) isDead() bool { return p.ctx.Err() != nil }

// message is one call from a peer to another process.
type message struct {
	from   *Peer
	to     string // place of the other process
	method string
	key    string // session of the call
}

// identity returns a name that is the same in every run of a schedule.
func (m message) identity() string {
	return strings.Join([]string{m.from.id, m.to, m.method, m.key}, " ")
}

func (m message) involves(place string) bool { return m.from.name == place || m.to == place }

// Delays of messages. A few take much longer than the others.
const (
	minDelay  = 2 * time.Millisecond
	maxDelay  = 40 * time.Millisecond
	slowDelay = 600 * time.Millisecond
	slowOdds  = 50 // one message of so many is slow
)

// delay returns how long the next message of an identity takes.
func (n *Network) delay(identity string) time.Duration {
	n.mu.Lock()
	n.counts[identity]++
	count := n.counts[identity]
	n.mu.Unlock()
	h := fnv.New64a()
	fmt.Fprintf(h, "%d %s %d", n.seed, identity, count)
	x := h.Sum64()
	x ^= x >> 29
	x *= 0xbf58476d1ce4e5b9
	x ^= x >> 32
	most := maxDelay
	if x%slowOdds == 0 {
		most = slowDelay
	}
	return minDelay + time.Duration((x>>8)%uint64(most))
}

// Call delivers a request, makes the call, and delivers the reply. It returns a failure when one of them is lost.
func (p *Peer) Call(ctx context.Context, to, method, key string, call func(context.Context) error) error {
	m := message{p, to, method, key}
	n := p.network
	if err := n.travel(ctx, m, schedule.CrashAtRequest); err != nil {
		return err
	}
	if n.take(m, schedule.LoseRequest) {
		return lostError(m, "the request was lost")
	}
	if n.take(m, schedule.Duplicate) {
		_ = call(ctx) // the caller learns the result of the second one
	}
	n.record(m, "→", "")
	err := call(ctx)
	if later := n.travel(ctx, m, schedule.CrashAtReply); later != nil {
		return later
	}
	if n.take(m, schedule.LoseReply) {
		return lostError(m, "the reply was lost")
	}
	if err != nil {
		n.record(m, "←", err.Error())
	}
	return err
}

// travel waits until a message has arrived. It returns an error if the message cannot arrive.
func (n *Network) travel(ctx context.Context, m message, crash schedule.Kind) error {
	for _, place := range []string{m.from.name, m.to} {
		if f := n.find(crash, m, place); f != nil {
			n.note(m, fmt.Sprintf("%s crashes (%s)", place, crash))
			n.onCrash(place, f.For)
		}
	}
	wait := n.delay(m.identity() + string(crash))
	if crash == schedule.CrashAtRequest {
		if f := n.find(schedule.Delay, m, m.from.name); f != nil {
			n.note(m, "is delayed for "+f.For.String())
			wait += f.For
		}
	}
	if err := m.from.sleep(ctx, wait); err != nil {
		return err
	}
	for {
		how, until := n.obstacle(m)
		switch {
		case how == "" && m.from.isDead():
			return deadError(m)
		case how == "":
			return nil
		case how == schedule.Partition || how == schedule.Outage:
			return lostError(m, "there is no connection")
		}
		if err := m.from.sleep(ctx, until); err != nil {
			return err
		}
	}
}

// sleep waits, or returns an error when ctx ends or the sender dies first.
func (p *Peer) sleep(ctx context.Context, d time.Duration) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(p.ctx, cancel)()
	if err := retry.Sleep(ctx, d); err != nil {
		return failure.New(failure.SystemTimeout, "simulation", "no answer in time").Because(err)
	}
	return nil
}

// obstacle returns what keeps a message from arriving at the moment, and how long to wait before asking again.
func (n *Network) obstacle(m message) (schedule.Kind, time.Duration) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.healed {
		return "", 0
	}
	now := n.Now()
	for _, f := range n.faults {
		if now < f.At || now >= f.At+f.For {
			continue
		}
		between := m.involves(f.Process) && m.involves(f.Peer)
		switch {
		case f.Kind == schedule.Freeze && m.involves(f.Process),
			f.Kind == schedule.Outage && m.involves(f.Process),
			(f.Kind == schedule.Partition || f.Kind == schedule.Silence) && between:
			if !f.hasHit {
				f.hasHit = true
				n.tell("", "", "fault begins: "+f.String(), "")
			}
			return f.Kind, min(f.At+f.For-now, time.Second)
		}
	}
	return "", 0
}

// Jump returns how far a clock of a store has jumped by now.
func (n *Network) Jump(store string) (by time.Duration) {
	n.mu.Lock()
	defer n.mu.Unlock()
	now := n.Now()
	for _, f := range n.faults {
		if f.Kind == schedule.Clock && f.Process == store && now >= f.At && (f.hasHit || !n.healed) {
			f.hasHit = true
			by += f.For
		}
	}
	return by
}

// find returns the fault of a kind that hits the message as one of a process. Each fault hits one message.
func (n *Network) find(kind schedule.Kind, m message, process string) *schedule.Fault {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.healed || process == "" {
		return nil
	}
	i := slices.IndexFunc(n.faults, func(f *armedFault) bool {
		return !f.hasHit && f.Kind == kind && f.Process == process && n.Now() >= f.At && (f.Method == "" || f.Method == m.method)
	})
	if i < 0 {
		return nil
	}
	n.faults[i].hasHit = true
	return &n.faults[i].Fault
}

// take reports whether a fault of a kind hits the message, at either of its ends.
func (n *Network) take(m message, kind schedule.Kind) bool {
	if m.to == schedule.Ledger { // what happens between a tool and the world is not a promise of the mesh
		return false
	}
	if n.find(kind, m, m.from.name) == nil && n.find(kind, m, m.to) == nil {
		return false
	}
	n.note(m, string(kind))
	return true
}

// Hits returns how many faults took effect, by kind.
func (n *Network) Hits() map[schedule.Kind]int {
	n.mu.Lock()
	defer n.mu.Unlock()
	hits := map[schedule.Kind]int{}
	for _, f := range n.faults {
		if f.hasHit {
			hits[f.Kind]++
		}
	}
	return hits
}

// TakeDue returns the faults of a kind whose time has come, each once.
func (n *Network) TakeDue(kind schedule.Kind) (due []schedule.Fault) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, f := range n.faults {
		if f.Kind == kind && !f.hasHit && !n.healed && n.Now() >= f.At {
			f.hasHit = true
			due = append(due, f.Fault)
			n.tell(f.Process, "", "fault: "+f.String(), "")
		}
	}
	return due
}

func lostError(m message, why string) error {
	return failure.Newf(failure.SystemNetwork, "simulation", "%s to %s: %s", m.method, m.to, why)
}

func deadError(m message) error { return lostError(m, "the sender has crashed") }
