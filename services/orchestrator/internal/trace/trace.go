// Package trace keeps the records and the event logs of traces: the ORCHESTRATOR tier.
//
// A Log belongs to the replica that drives its trace. Events are numbered when they are appended, stored
// in that order, and shown to watchers only once they are stored. The writes of a log follow each other,
// and events that were appended meanwhile go with the next write. Other replicas read a trace as it is
// stored.
//
// Owners renew the leases of their open traces again and again. A trace whose lease expired is taken over
// by the replica that asks next (docs/adr/0016). Renewing costs each replica one write in two seconds for
// all its traces together, and costs a turn nothing: a trace enters the list of open traces in the round
// trip of its claim, and leaves it with one of those writes.
package trace

import (
	"context"
	"time"

	troupev1 "github.com/troupe-dev/troupe/pkg/gen/troupe/v1"
)

// Ref names a trace of a tenant.
type Ref struct {
	Tenant string
	Trace  string
}

// Store keeps traces durably. Errors are failure.Errors. Besides the modes that a method lists, any may
// fail with system_network or system_timeout, after which a write may have happened: repeat it.
type Store interface {
	// Claim makes the record with its first events, or takes over a trace that has not ended, with a
	// higher owner epoch and the record's owner. It returns the owner epoch and the last sequence.
	// Events that are stored already are ignored. Modes: turn_not_open when the trace has ended; fenced
	// when it was claimed under a higher epoch of its turn; session_deleted when its session, or the
	// parent trace, is erased. Then nothing is left of the claim, and its session will be erased.
	Claim(ctx context.Context, c Claim) (ownerEpoch int64, last uint64, err error)
	// Append stores events in order, and the epoch under which the turn is now driven (0 means as
	// before). Their sequences must continue the log; those that are stored already are ignored. A
	// result ends the trace. Modes: fenced when another owner has claimed it; not_found.
	Append(ctx context.Context, ref Ref, ownerEpoch, turnEpoch int64, events []*troupev1.Event, result *troupev1.TurnResult) error
	// Get returns a record. Modes: not_found.
	Get(ctx context.Context, ref Ref) (*troupev1.Trace, error)
	// Load returns a record with what another owner needs to continue it. Modes: not_found.
	Load(ctx context.Context, ref Ref) (RunningTrace, error)
	// Events returns at most limit stored events after the given sequence, in order.
	Events(ctx context.Context, ref Ref, after uint64, limit int) ([]*troupev1.Event, error)
	// List returns the latest records, newest first, without the texts of their results.
	List(ctx context.Context, tenant string, q Query) ([]*troupev1.Trace, error)
	OpenTraces
	Audit
	Erasures
}

// Query selects traces.
type Query struct {
	Root        string // only traces of the run that began with this trace (empty means all)
	Quarantined bool   // only quarantined ones
	Limit       int    // above 0
}

// Quarantined reports whether a trace with this result is never run again, because it crashed the workers or
// orchestrators that ran it (guarantee F22).
func Quarantined(result *troupev1.TurnResult) bool {
	return result.GetFailure().GetMode() == troupev1.FailureMode_FAILURE_MODE_ATTEMPTS_EXHAUSTED
}

// Claim holds the data with which an owner opens a trace.
type Claim struct {
	Tenant string
	Record *troupev1.Trace
	Turn   TurnInfo
	Events []*troupev1.Event
}

// Ref names the trace.
func (c Claim) Ref() Ref { return Ref{c.Tenant, c.Record.GetTraceId()} }

// TurnInfo holds the data that another owner needs to continue a turn, in addition to its record and its turn in
// the memory service.
type TurnInfo struct {
	User           string
	Fingerprint    string        // of the request
	TurnEpoch      int64         // under which the turn is driven; the owner with the highest has the trace
	Timeout        time.Duration // of the turn, from this claim on (0 means as before)
	HasCredentials bool          // whether the request had credentials, which are stored nowhere
	Labels         string        // of the request, as its first owner wrote them; later claims do not change them
	// Parent is the parent trace: its agent asked for this one, in a child session that is erased with
	// the session of the parent (empty means none). Later claims do not change it.
	Parent string
}

// RunningTrace is a trace as a new owner loads it.
type RunningTrace struct {
	Record        *troupev1.Trace
	Turn          TurnInfo
	TimeLeft      time.Duration // until the timeout, by the clock of the store; negative when it has passed
	StopRequested bool          // whether a stop was requested, for the given reason
	StopReason    string
}
