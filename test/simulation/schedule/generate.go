package schedule

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"
)

// The processes of a simulated mesh, and what they use.
const (
	Orchestrators = 2
	Memories      = 2
	Workers       = 3 // of the scripted agent
	Helpers       = 2 // workers of the helper

	Clients    = "clients"
	Store      = "store"    // of the memory service
	TraceStore = "traces"   // of the orchestrators
	Registry   = "registry" // of all processes
	Ledger     = "ledger"   // of the tools, outside of the mesh
)

// Orchestrator returns the name of an orchestrator, counted from 1.
func Orchestrator(n int) string { return fmt.Sprintf("orchestrator-%d", n) }

// Memory returns the name of a memory service.
func Memory(n int) string { return fmt.Sprintf("memory-%d", n) }

// Worker returns the name of the place of a worker. Each worker that takes the place has an id of its own.
func Worker(n int) string { return fmt.Sprintf("worker-%d", n) }

// Helper returns the name of the place of a worker of the helper.
func Helper(n int) string { return fmt.Sprintf("helper-%d", n) }

// FaultTime is the time in which faults begin. The mesh is ready at Start.
const (
	Start     = 2 * time.Second
	FaultTime = 8 * time.Second
)

// Sizes of the workload.
const (
	clients    = 2
	contenders = 1
	guests     = 1
)

// In a few runs, only the registry is away, for longer than any lease. Turns must go on nevertheless (guarantee G8).
const (
	registryOdds   = 4 // percent of the runs
	registryOutage = 40 * time.Second
)

const updateOdds = 5 // percent of the runs in which all workers are replaced meanwhile

// OnlyRegistryIsAway reports whether the registry is away during the whole run, and nothing else goes wrong.
func (s Schedule) OnlyRegistryIsAway() bool {
	return len(s.Faults) == 1 && s.Faults[0].Process == Registry && s.Faults[0].For >= s.Time && s.Time >= registryOutage
}

// generator draws faults.
type generator struct {
	rng    *rand.Rand
	faults []Fault
}

// class is a class of faults. Each makes up to most faults in a run that has the class.
type class struct {
	name  string
	odds  int // percent of the runs that have it
	most  int
	fault func(g *generator) Fault
}

var classes = []class{
	{"crash", 70, 4, (*generator).crash},
	{"message", 80, 8, (*generator).message},
	{"freeze", 30, 2, (*generator).freeze},
	{"partition", 40, 3, (*generator).partition},
	{"outage", 25, 2, (*generator).outage},
	{"clock", 20, 2, (*generator).clock},
	{"rollback", 6, 1, (*generator).rollback},
}

// ClassNames returns the names of all classes of faults.
func ClassNames() (names []string) {
	for _, c := range classes {
		names = append(names, c.name)
	}
	return append(names, "registry", "update")
}

// New returns the schedule of a seed, with faults of the named classes only (none named means all classes).
func New(seed uint64, only ...string) Schedule {
	g := &generator{rng: rand.New(rand.NewPCG(seed, 0x7a11))}
	for _, c := range classes {
		has, n := g.rng.IntN(100) < c.odds, 1+g.rng.IntN(c.most)
		for range n {
			f := c.fault(g) // drawn in any case, so that a class does not change the others
			f.At = Start + time.Duration(g.rng.Int64N(int64(FaultTime)))
			if has && (len(only) == 0 || slices.Contains(only, c.name)) {
				g.faults = append(g.faults, f)
			}
		}
	}
	if update := g.rng.IntN(100) < updateOdds; update && (len(only) == 0 || slices.Contains(only, "update")) {
		g.faults = append(g.faults, g.update()...)
	}
	s := Schedule{Seed: seed, Clients: clients, Contenders: contenders, Guests: guests, Time: FaultTime, Faults: g.faults}
	if slices.ContainsFunc(s.Faults, func(f Fault) bool { return (f.Kind == Clock || f.Kind == Rollback) && f.Process == Store }) {
		s.Contenders = 0 // they expect that leases last as long as they say, and that acknowledged writes stay
	}
	if alone := g.rng.IntN(100) < registryOdds; alone && (len(only) == 0 || slices.Contains(only, "registry")) {
		s.Faults = []Fault{{At: Start, Kind: Outage, Process: Registry, For: registryOutage}}
		s.Clients, s.Contenders, s.Guests, s.Time = 1, 0, 0, registryOutage
	}
	slices.SortStableFunc(s.Faults, func(a, b Fault) int { return cmp.Compare(a.At, b.At) })
	return s
}

func pick[T any](g *generator, from ...T) T { return from[g.rng.IntN(len(from))] }

// upTo returns a random duration, short ones being likelier.
func (g *generator) upTo(most time.Duration) time.Duration {
	return time.Duration(g.rng.Float64() * g.rng.Float64() * float64(most)).Round(time.Millisecond)
}

func (g *generator) process() string {
	switch dice := g.rng.IntN(10); {
	case dice < 4:
		return Orchestrator(1 + g.rng.IntN(Orchestrators))
	case dice < 6:
		return Memory(1 + g.rng.IntN(Memories))
	case dice < 7:
		return Helper(1 + g.rng.IntN(Helpers))
	default:
		return Worker(1 + g.rng.IntN(Workers))
	}
}

// methods are the messages at which faults are worth most: the writes, and the calls of models and tools.
func (g *generator) method(process string) string {
	if g.rng.IntN(4) == 0 {
		return ""
	}
	switch process[0] {
	case 'o':
		return pick(g, "BeginTurn", "Claim", "Append", "Heartbeat", "ExecuteStep", "RenewTurn", "FailTurn", "Orchestrate", "ReleaseTurn")
	case 'm':
		return pick(g, "BeginTurn", "CommitStep", "CommitStep", "Journal", "Record", "LoadJournal", "FailTurn", "RenewTurn")
	default:
		return pick(g, "model", "read", "idempotent", "at_most_once", "Journal", "CommitStep", "CommitStep", "ExecuteStep", "LoadJournal")
	}
}

func (g *generator) crash() Fault {
	p := g.process()
	return Fault{Kind: pick(g, CrashAtRequest, CrashAtReply), Process: p, Method: g.method(p), For: 50*time.Millisecond + g.upTo(4*time.Second)}
}

func (g *generator) message() Fault {
	p := g.process()
	f := Fault{Kind: pick(g, LoseRequest, LoseReply, LoseReply, LoseReply, Duplicate, Duplicate, Delay, Cut), Process: p, Method: g.method(p)}
	if f.Kind == Delay {
		f.For = g.upTo(8 * time.Second)
	}
	if f.Kind == Cut {
		f.Method = "ExecuteStep"
		if p[0] == 'o' {
			f.Method, f.Process = "Orchestrate", Clients
		}
	}
	return f
}

func (g *generator) freeze() Fault {
	return Fault{Kind: Freeze, Process: g.process(), For: 500*time.Millisecond + g.upTo(14*time.Second)}
}

func (g *generator) partition() Fault {
	p := g.process()
	var peer string
	switch p[0] {
	case 'o':
		peer = pick(g, Worker(1+g.rng.IntN(Workers)), Memory(1+g.rng.IntN(Memories)), TraceStore, Registry)
	case 'm':
		peer = pick(g, Store, Registry)
	default:
		peer = pick(g, Memory(1+g.rng.IntN(Memories)), Registry)
	}
	return Fault{Kind: pick(g, Partition, Silence), Process: p, Peer: peer, For: 200*time.Millisecond + g.upTo(20*time.Second)}
}

// update replaces all workers while an orchestrator does not reach the registry.
func (g *generator) update() (all []Fault) {
	all = append(all, Fault{At: Start, Kind: Partition, Process: Orchestrator(1 + g.rng.IntN(Orchestrators)), Peer: Registry, For: FaultTime})
	for n := range Workers {
		at := Start + time.Second + time.Duration(g.rng.Int64N(int64(FaultTime/2)))
		all = append(all, Fault{At: at, Kind: CrashAtRequest, Process: Worker(n + 1), For: 200 * time.Millisecond})
	}
	return all
}

func (g *generator) outage() Fault {
	return Fault{Kind: Outage, Process: pick(g, Store, TraceStore, Registry, Registry), For: 200*time.Millisecond + g.upTo(20*time.Second)}
}

func (g *generator) clock() Fault {
	by := g.upTo(40 * time.Second)
	if g.rng.IntN(3) == 0 {
		by = -g.upTo(2 * time.Second)
	}
	return Fault{Kind: Clock, Process: pick(g, Store, TraceStore), For: by}
}

func (g *generator) rollback() Fault {
	return Fault{Kind: Rollback, Process: Store, Writes: 1 + g.rng.IntN(30)}
}
