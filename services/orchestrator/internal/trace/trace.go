// Package trace keeps the records and the event logs of traces: the ORCHESTRATOR tier.
//
// A Log belongs to the replica that drives its trace. Events are numbered when they are appended, and stored in
// that order. Watchers see an event only once it is stored. A log has one write in progress at a time, and the
// next write stores all events that were appended meanwhile. Other replicas read a trace from the store.
//
// Owners renew the leases of their open traces regularly. When a lease expires, the replica that sends the next
// heartbeat takes the trace over (docs/adr/0016). Renewing the leases of all its traces costs a replica one write
// every two seconds and costs a turn nothing: the claim of a trace also adds it to the list of open traces, and a
// heartbeat removes it.
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

// Store keeps traces durably. Its errors are failure.Errors. Besides its listed modes, every method may fail with
// system_network or system_timeout. The write may then have been applied, so the caller repeats it.
type Store interface {
	// Claim creates the record with its first events. If the trace exists and has not ended, Claim takes it over
	// with a higher owner epoch and the new record's owner. It returns the owner epoch and the last sequence.
	// Events that are already stored are ignored. Modes: turn_not_open when the trace has ended; fenced when it
	// was claimed under a higher epoch of its turn; session_deleted when its session or the parent trace is
	// erased. In the last case nothing of the claim remains, and its session will be erased.
	Claim(ctx context.Context, c Claim) (ownerEpoch int64, last uint64, err error)
	// Append stores events in order, together with the epoch under which the turn is now driven (0 leaves the
	// epoch unchanged). Their sequences must continue the log; events that are already stored are ignored. A
	// result ends the trace. Modes: fenced when another owner has claimed it; not_found.
	Append(ctx context.Context, ref Ref, ownerEpoch, turnEpoch int64, events []*troupev1.Event, result *troupev1.TurnResult) error
	// Get returns a record. Modes: not_found.
	Get(ctx context.Context, ref Ref) (*troupev1.Trace, error)
	// Load returns a record with all data that another owner needs to continue the trace. Modes: not_found.
	Load(ctx context.Context, ref Ref) (RunningTrace, error)
	// Events returns at most limit stored events after the given sequence, in order.
	Events(ctx context.Context, ref Ref, after uint64, limit int) ([]*troupev1.Event, error)
	// List returns the latest records, newest first, without the texts of their results.
	List(ctx context.Context, tenant string, q Query) ([]*troupev1.Trace, error)
	OpenTraces
	DecisionIndex
	Eraser
}

// Query selects traces.
type Query struct {
	Root            string // only traces of the run that began with this trace (empty means all)
	Session         string // only traces of this session (empty means all); not together with Root
	OnlyQuarantined bool   // only quarantined ones
	Limit           int    // above 0
}

// IsQuarantined reports whether a trace with this result must never run again, because it crashed the workers or
// orchestrators that ran it (guarantee F22).
func IsQuarantined(result *troupev1.TurnResult) bool {
	return result.GetFailure().GetMode() == troupev1.FailureMode_FAILURE_MODE_ATTEMPTS_EXHAUSTED
}

// Claim holds the data with which an owner claims a trace.
type Claim struct {
	Tenant string
	Record *troupev1.Trace
	Turn   TurnInfo
	Events []*troupev1.Event
}

// Ref names the trace.
func (c Claim) Ref() Ref { return Ref{c.Tenant, c.Record.GetTraceId()} }

// TurnInfo holds the data that another owner needs to continue a turn and that neither its record nor the memory
// service has.
type TurnInfo struct {
	User           string
	Fingerprint    string        // fingerprint of the request
	TurnEpoch      int64         // epoch under which the turn is driven; the owner with the highest epoch has the trace
	Timeout        time.Duration // timeout of the turn, from this claim on (0 keeps the stored one)
	HasCredentials bool          // whether the request had credentials, which are never stored
	Labels         string        // labels of the request, as the first owner wrote them; later claims do not change them
	// Parent is the trace whose agent requested this one, in a child session (empty means none). The child session
	// is erased together with the session of the parent. Later claims do not change Parent.
	Parent string
}

// RunningTrace is a trace with its turn, as a new owner loads it.
type RunningTrace struct {
	Record        *troupev1.Trace
	Turn          TurnInfo
	TimeLeft      time.Duration // until the timeout, by the clock of the store; negative when it has passed
	StopRequested bool          // whether a client or an operator asked to stop the turn
	StopReason    string        // reason of the first such request (may be empty)
}
