package model

import (
	"github.com/troupe-dev/troupe/services/orchestrator/internal/turn/decide"
)

// Sizes of the explored mesh.
const (
	orchestrators = 2
	workers       = 2
)

// budget bounds the faults of a run, so that the states are finite.
type budget struct {
	Crashes, LostReplies, Expiries, Rollbacks int8
	Requests                                  int8 // repeated requests of the client, while it would be answered anyway
}

// phase is where an orchestrator is in the protocol.
type phase int8

// Phases of an orchestrator.
const (
	idle     phase = iota
	asking         // a client wants the turn; BeginTurn is called until it is answered
	claiming       // has the turn, and claims the trace
	driving        // has the trace: runs the step, and waits for its end
	reclaiming
	ending // the turn is closed: stores the last event
	looking
	releasing
	closingTrace // another owner closed the turn: claims its trace, to end it
)

// orchestrator is the memory of an orchestrator. A crash empties it.
type orchestrator struct {
	At     phase
	Epoch  int8
	Owns   bool // its claim of the trace is the latest
	Known  int8 // events of the trace that it knows
	Worker int8 // who runs its step, counted from 1 (0 means no worker)
}

// workerPhase is where a worker is in a step.
type workerPhase int8

// Phases of a worker.
const (
	free       workerPhase = iota
	loading                // reads the journal
	intending              // stores the intent of the tool call
	acting                 // calls the tool
	recording              // stores the result of the tool call
	committing             // commits the step
)

// worker is the memory of a worker. A crash empties it.
type worker struct {
	At    workerPhase
	Epoch int8
	For   int8 // the orchestrator that waits for it, counted from 1
}

// world is a state of everything.
type world struct {
	Turn    turn
	Trail   trail
	O       [orchestrators]orchestrator
	W       [workers]worker
	Left    budget
	Backup  turn // what a rollback restores
	HasCopy bool

	// What the checks need to know.
	Effects    int8 // how often the tool ran
	MaxEpoch   int8 // the latest epoch that was ever granted
	RolledBack bool
	Wrong      broken
}

// broken is a promise that was broken.
type broken int8

// Broken promises.
const (
	kept broken = iota
	epochTwice
	holderLate
	lateWrite
	twoEnds
	sameNumber
	hole
	effectTwice
	noCase
	openTurn
)

// String describes the broken promise.
func (b broken) String() string {
	return [...]string{
		"nothing is broken", "an epoch is granted although it, or a later one, was granted before", "a holder has an epoch, and a later one was granted",
		"a write is accepted after a later epoch was granted", "a second last event is stored", "the last event gets the number of another event",
		"the events have a hole", "the tool that may run once ran twice", "an orphaned trace has no case in the table",
		"a trace ends, and its turn is open",
	}[b]
}

// step is a transition.
type step struct {
	who     string
	what    string
	to      world
	isFault bool
}

// Names for the paths.
var (
	orchestratorNames = [orchestrators]string{"orchestrator 1", "orchestrator 2"}
	workerNames       = [workers]string{"worker 1", "worker 2"}
)

// maxEpoch is higher than every epoch of a turn.
const maxEpoch = 100

// explorer makes the transitions of a table.
type explorer struct {
	table
	find func(decide.RequestKind, decide.LookupResult, bool) decide.Case
}

// next returns all transitions of a state.
func (x explorer) next(w world) (all []step) {
	add := func(isFault bool, to world, who, what string) { all = append(all, step{who, what, to, isFault}) }
	for i := range w.O {
		x.orchestrate(w, i, func(to world, name string) { add(false, to, orchestratorNames[i], name) })
		if w.Left.Crashes > 0 && w.O[i].At != idle {
			to := w
			to.Left.Crashes--
			to.O[i] = orchestrator{}
			to.forget(i)
			add(true, to, orchestratorNames[i], "crashes")
		}
	}
	for i := range w.W {
		x.work(w, i, func(to world, name string) { add(false, to, workerNames[i], name) })
		if w.Left.Crashes > 0 && w.W[i].At != free {
			to := w
			to.Left.Crashes--
			to.W[i] = worker{}
			add(true, to, workerNames[i], "crashes")
		}
	}
	x.passTime(w, add)
	return all
}

// passTime lets leases expire, and the store go back in time. A lease expires early only as a fault: its holder renews
// it. The lease of a holder that crashed expires by itself.
func (x explorer) passTime(w world, add func(isFault bool, to world, who, what string)) {
	to := w
	if to.Turn.Leased = false; w.Turn.Leased && (w.Left.Expiries > 0 || !x.isDriven(w)) {
		if x.isDriven(w) {
			to.Left.Expiries--
		}
		add(x.isDriven(w), to, "the lease of the turn", "expires")
	}
	to = w
	if to.Trail.Leased = false; w.Trail.Leased && !w.Trail.Ended && (w.Left.Expiries > 0 || !x.isDriven(w)) {
		if x.isDriven(w) {
			to.Left.Expiries--
		}
		add(x.isDriven(w), to, "the lease of the trace", "expires")
	}
	if w.Left.Rollbacks == 0 {
		return
	}
	if to = w; !w.HasCopy {
		to.Backup, to.HasCopy = w.Turn, true
		add(true, to, "the store", "is copied")
		return
	}
	to.Left.Rollbacks--
	to.Turn, to.RolledBack = w.Backup, true
	if x.generations {
		to.Turn.LeastEpoch = w.MaxEpoch + 1
	}
	add(true, to, "the store", "goes back to its copy")
}

// isDriven reports whether an orchestrator lives that renews the leases.
func (x explorer) isDriven(w world) bool {
	for _, o := range w.O {
		if o.At >= claiming && o.At <= ending {
			return true
		}
	}
	return false
}

// isActive reports whether an orchestrator is at work.
func (x explorer) isActive(w world) bool {
	for _, o := range w.O {
		if o.At != idle {
			return true
		}
	}
	return false
}

// grant records the epoch that an orchestrator was granted.
func (w *world) grant(epoch int8, again bool) {
	if !again && epoch <= w.MaxEpoch {
		w.Wrong = epochTwice
	}
	w.MaxEpoch = max(w.MaxEpoch, epoch)
}

// wrote checks that an accepted write has the latest epoch. After a rollback this holds for turns that began again: until
// then, the store knows of no later epoch.
func (w *world) wrote(epoch int8) {
	if epoch != w.MaxEpoch && epoch >= w.Turn.LeastEpoch {
		w.Wrong = lateWrite
	}
}

// forget makes the ids of the traces that an orchestrator used before unknown to it: every request gets a new one.
func (w *world) forget(i int) {
	for _, t := range []*turn{&w.Turn, &w.Backup} {
		if t.Holder == int8(i+1) {
			t.Holder = 0
		}
	}
}

// call is a call of a store: the reply reaches the caller, or it is lost and the caller calls again.
func call(before, after world, name string, answered func(*world), add func(world, string)) {
	if before.Left.LostReplies > 0 && after != before {
		lost := after
		lost.Left.LostReplies--
		add(lost, "gets no reply when it "+name)
	}
	answered(&after)
	add(after, name)
}

// orchestrate returns what an orchestrator may do next.
func (x explorer) orchestrate(w world, i int, add func(world, string)) {
	o := w.O[i]
	to := w
	switch o.At {
	case idle:
		needed := !x.isActive(w) && w.Trail.Owner == 0 // otherwise the client only asks again
		if !w.Trail.Ended && (needed || w.Left.Requests > 0) {
			if !needed {
				to.Left.Requests--
			}
			to.O[i].At = asking
			to.forget(i)
			add(to, "gets the request")
		}
		if to = w; w.Trail.Owner > 0 && !w.Trail.Ended && !w.Trail.Leased {
			to.Trail.Leased, to.O[i].At = true, looking
			add(to, "finds the trace orphaned")
		}
	case asking:
		x.begin(w, i, 0, "asks for the turn", add)
	case claiming:
		x.claim(w, i, driving, add)
	case driving:
		x.drive(w, i, add)
	case reclaiming:
		x.begin(w, i, o.Epoch, "takes its turn back from a lost worker", add)
	case ending:
		var r reply
		to.Trail, r = x.append(w.Trail, o.Owns, o.Epoch, o.Known)
		if r == ok && o.Known < w.Trail.Last && !w.Trail.Ended {
			to.Wrong = sameNumber
		}
		if r == ok && w.Trail.Ended && !o.Owns {
			to.Wrong = twoEnds
		}
		if r == ok && w.Turn.Exists && !w.Turn.Closed && !w.RolledBack {
			to.Wrong = openTurn
		}
		if r == gap {
			to.Wrong = hole
		}
		call(w, to, "stores the last event", func(to *world) { to.O[i] = orchestrator{} }, add)
	case looking:
		x.lookUp(w, i, add)
	case releasing:
		var r reply
		to.Turn, r = x.release(w.Turn, o.Epoch)
		call(w, to, "releases the lease of the lost owner", func(to *world) {
			to.O[i] = orchestrator{}
			if r == ok {
				to.O[i].At = asking
				to.forget(i)
			}
		}, add)
	case closingTrace:
		x.claim(w, i, ending, add)
	}
}

// begin asks the memory service for the turn.
func (x explorer) begin(w world, i int, lost int8, name string, add func(world, string)) {
	to := w
	var r reply
	to.Turn, r = x.table.begin(w.Turn, int8(i+1), lost)
	if r == ok && to.Turn != w.Turn {
		to.grant(to.Turn.Epoch, false)
	} else if r == ok && to.Turn.Epoch != w.MaxEpoch && !w.RolledBack {
		to.Wrong = holderLate
	}
	call(w, to, name, func(to *world) {
		o := &to.O[i]
		switch {
		case r == ok && o.At == reclaiming:
			o.At, o.Epoch, o.Worker = driving, to.Turn.Epoch, 0
		case r == ok:
			*o = orchestrator{At: claiming, Epoch: to.Turn.Epoch}
		case r == closed && o.At == reclaiming:
			o.At, o.Worker = ending, 0 // the lost worker had committed
		case r == closed:
			*o = orchestrator{At: closingTrace, Epoch: maxEpoch} // the trace may need an end
			if to.Trail.Ended {
				*o = orchestrator{}
			}
		default:
			*o = orchestrator{} // another orchestrator drives it; the client watches
		}
	}, add)
}

// claim claims the trace.
func (x explorer) claim(w world, i int, then phase, add func(world, string)) {
	to := w
	var r reply
	to.Trail, r = x.table.claim(w.Trail, int8(i+1), w.O[i].Epoch)
	if r == ok {
		for n := range to.O {
			to.O[n].Owns = n == i
		}
	}
	call(w, to, "claims the trace", func(to *world) {
		if r != ok {
			to.O[i] = orchestrator{}
			return
		}
		o := &to.O[i]
		o.At, o.Known = then, to.Trail.Last
	}, add)
}

// drive runs the step of the turn.
func (x explorer) drive(w world, i int, add func(world, string)) {
	o := w.O[i]
	if o.Worker == 0 {
		for n := range w.W {
			if to := w; w.W[n].At == free {
				to.W[n] = worker{At: loading, Epoch: o.Epoch, For: int8(i + 1)}
				to.O[i].Worker = int8(n + 1)
				add(to, "gives the step to "+workerNames[n])
				break
			}
		}
		return
	}
	to := w
	to.O[i].At = reclaiming
	lost := w.W[o.Worker-1].For != int8(i+1) || w.W[o.Worker-1].Epoch != o.Epoch || w.W[o.Worker-1].At == free
	if lost { // it ended without an answer
		add(to, "loses its worker")
	} else if w.Left.Expiries > 0 {
		to.Left.Expiries--
		add(to, "believes that its worker is lost")
	}
}

// lookUp asks the memory service for the turn of an orphaned trace, and does what the table of package decide says.
func (x explorer) lookUp(w world, i int, add func(world, string)) {
	found := decide.LeaseExpired
	switch {
	case !w.Turn.Exists:
		found = decide.Absent
	case w.Turn.Closed:
		found = decide.Closed
	case w.Turn.Leased:
		found = decide.LeaseHeld
	}
	to := w
	o := &to.O[i]
	o.Epoch = w.Turn.Epoch
	switch c := x.find(decide.Orphan, found, false); c {
	case decide.EndClosedTurn, decide.EndVanishedTurn:
		o.At, o.Epoch = closingTrace, maxEpoch
	case decide.TakeOver:
		o.At = releasing
		if found != decide.LeaseHeld {
			o.At = asking
			to.forget(i)
		}
	default:
		to.Wrong = noCase
	}
	add(to, "finds its turn "+string(found))
}

// work returns what a worker may do next.
func (x explorer) work(w world, i int, add func(world, string)) {
	me := w.W[i]
	to := w
	stop := func(to *world) { to.W[i] = worker{} }
	var r reply
	switch me.At {
	case free:
	case loading:
		if r = x.checkWrite(w.Turn, me.Epoch); r != ok {
			stop(&to)
			add(to, "is fenced")
			return
		}
		switch {
		case w.Turn.Journal == nothing && x.intentFirst:
			to.W[i].At = intending
		case w.Turn.Journal == nothing:
			to.W[i].At = acting
		default: // the result is known, or in doubt
			to.W[i].At = committing
		}
		add(to, "reads the journal")
	case intending:
		x.journal(w, i, intent, acting, "stores the intent", add)
	case acting:
		to.Effects++
		if to.Effects > 1 && !w.RolledBack {
			to.Wrong = effectTwice
		}
		to.W[i].At = recording
		add(to, "runs the tool")
	case recording:
		x.journal(w, i, done, committing, "stores the result", add)
	case committing:
		to.Turn, r = x.commit(w.Turn, me.Epoch)
		if r == ok && to.Turn != w.Turn {
			to.wrote(me.Epoch)
		}
		call(w, to, "commits", func(to *world) {
			stop(to)
			if o := &to.O[me.For-1]; r == ok && o.At == driving && o.Worker == int8(i+1) && o.Epoch == me.Epoch {
				o.At, o.Worker = ending, 0
			}
		}, add)
	}
}

// journal stores an entry of the journal and goes on, or stops when it is fenced.
func (x explorer) journal(w world, i int, entry journal, then workerPhase, name string, add func(world, string)) {
	to := w
	var r reply
	to.Turn, r = x.record(w.Turn, w.W[i].Epoch, entry)
	if r == ok {
		to.wrote(w.W[i].Epoch)
	}
	call(w, to, name, func(to *world) {
		to.W[i].At = then
		if r != ok {
			to.W[i] = worker{}
		}
	}, add)
}
