// Package model explores the protocol of a turn: who may drive it, who may write to it, and how it is taken over. It
// visits every state that two orchestrators, two workers and the two stores can reach with crashes, lost replies,
// expired leases and one rollback of the store.
//
// What an orchestrator does about an orphaned trace comes from the table of package decide. The two stores are small
// functions here; a test compares each of their transitions with the stores in RAM, which pass the suites of the real
// ones.
package model

// table is what the protocol depends on. The tests change it to see that the explorer notices.
type table struct {
	takeoverRaisesEpoch bool // a takeover gets a new epoch
	writesCheckEpoch    bool // the store rejects writes with an earlier epoch
	appendChecksOwner   bool // the store of traces rejects the events of an earlier owner
	claimChecksEpoch    bool // the store of traces rejects a claim under an earlier epoch of the turn
	intentFirst         bool // the intent of a tool call is stored before the tool runs
	generations         bool // after a rollback, epochs are above all earlier ones
}

// code is the table as the code has it.
var code = table{true, true, true, true, true, true}

// turn is the turn as the memory service stores it.
type turn struct {
	Exists, Closed bool
	Epoch          int8
	Holder         int8 // the orchestrator that holds the lease, counted from 1
	Leased         bool // the lease has not expired
	Journal        journal
	LeastEpoch     int8 // of the generation
}

// journal is what the journal knows of the one tool call of the step.
type journal int8

// States of the call.
const (
	nothing journal = iota
	intent
	done
)

// reply is what a store answers.
type reply int8

// Replies.
const (
	ok reply = iota
	open
	closed
	fenced
	notFound
	notOpen
	gap
)

// begin asks for the turn as an orchestrator. lost is the epoch of an attempt that the holder has given up (0 means
// none).
func (c table) begin(t turn, by, lost int8) (turn, reply) {
	switch {
	case !t.Exists:
		t = turn{Exists: true, Epoch: t.Epoch, LeastEpoch: t.LeastEpoch}
	case t.Closed:
		return t, closed
	case t.Leased && t.Holder == by && lost != t.Epoch && t.Epoch >= t.LeastEpoch:
		return t, ok // a repeated call of the holder
	case t.Leased && t.Holder != by:
		return t, open
	case !c.takeoverRaisesEpoch:
		t.Holder, t.Leased = by, true
		return t, ok
	}
	t.Epoch, t.Holder, t.Leased = max(t.Epoch+1, t.LeastEpoch), by, true
	return t, ok
}

// checkWrite returns whether the store takes a write under an epoch.
func (c table) checkWrite(t turn, epoch int8) reply {
	switch {
	case !t.Exists:
		return notFound
	case epoch != t.Epoch && c.writesCheckEpoch:
		return fenced
	case t.Closed:
		return notOpen
	}
	return ok
}

// release ends a lease.
func (c table) release(t turn, epoch int8) (turn, reply) {
	r := c.checkWrite(t, epoch)
	if r == ok {
		t.Leased = false
	}
	return t, r
}

// record writes to the journal.
func (c table) record(t turn, epoch int8, entry journal) (turn, reply) {
	r := c.checkWrite(t, epoch)
	if r == ok {
		t.Journal = max(t.Journal, entry)
	}
	return t, r
}

// commit commits the only step, which closes the turn.
func (c table) commit(t turn, epoch int8) (turn, reply) {
	r := c.checkWrite(t, epoch)
	if r == notOpen && epoch == t.Epoch {
		return t, ok // the same commit again
	}
	if r == ok {
		t.Closed, t.Leased = true, false
	}
	return t, r
}

// trail is the trace as the store of traces has it.
type trail struct {
	Owner     int8 // who claimed it last: the holder of the latest owner epoch (0 means that it does not exist)
	TurnEpoch int8
	Last      int8 // sequence of the last event
	Ended     bool
	Leased    bool
}

// claim makes an orchestrator the owner, with the first event if there is none.
func (c table) claim(t trail, by, turnEpoch int8) (trail, reply) {
	switch {
	case t.Ended:
		return t, notOpen
	case t.TurnEpoch > turnEpoch && c.claimChecksEpoch:
		return t, fenced
	}
	t.Owner, t.TurnEpoch, t.Last, t.Leased = by, turnEpoch, max(t.Last, 1), true
	return t, ok
}

// append stores the last event of an owner that knows of some earlier ones. isOwner means that nobody claimed the trace
// after it.
func (c table) append(t trail, isOwner bool, turnEpoch, known int8) (trail, reply) {
	switch {
	case t.Owner == 0:
		return t, notFound
	case !isOwner && c.appendChecksOwner:
		return t, fenced
	case known > t.Last:
		return t, gap
	}
	t.Last, t.Ended, t.TurnEpoch = max(t.Last, known+1), true, turnEpoch
	return t, ok
}
