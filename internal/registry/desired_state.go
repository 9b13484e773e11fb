package registry

import (
	"context"
	"time"

	"github.com/troupe-dev/troupe/pkg/failure"
)

// DesiredState is the state that an operator wants an instance to have. Operators write it and the worker writes
// the registration, so the two are stored separately (guarantees, section 2.6). A key without an id means the whole agent,
// including future instances. Only Quarantine is used for a whole agent, and it can be removed while instances are
// registered.
type DesiredState struct {
	Key    Key
	Kind   DesiredKind
	Reason string    // reason given by the operator
	Since  time.Time // time of the operator's request
}

// DesiredKind is the name of a desired state, as stored.
type DesiredKind string

// These are the desired states. An instance without one should Run.
const (
	Run   DesiredKind = "RUN"
	Pause DesiredKind = "PAUSE"
	Drain DesiredKind = "DRAIN"
	// Quarantine excludes a whole agent from work (guarantee S18).
	Quarantine DesiredKind = "QUARANTINE"
)

// AgentKey returns the key that stands for a whole agent.
func AgentKey(agent string) Key { return Key{Agent: agent} }

// IsWholeAgent reports whether the key stands for a whole agent rather than for one instance.
func (k Key) IsWholeAgent() bool { return k.ID == "" }

// QuarantinedAgents returns the desired states that quarantine an agent, by agent. A state that this version does
// not know counts as quarantine.
func QuarantinedAgents(desires map[Key]DesiredState) map[string]DesiredState {
	out := map[string]DesiredState{}
	for key, d := range desires {
		if key.IsWholeAgent() && !d.Kind.AllowsSteps() {
			out[key.Agent] = d
		}
	}
	return out
}

// AllowsSteps reports whether an instance with this desired state may get steps. A state that this version does
// not know allows none.
func (d DesiredKind) AllowsSteps() bool { return d == "" || d == Run }

// QuarantineError returns the error for a call from, or a step for, a quarantined agent.
func (d DesiredState) QuarantineError(op string) error {
	return failure.Newf(failure.PolicySecurity, op, "agent %s is quarantined since %s; an operator can release it",
		d.Key.Agent, d.Since.UTC().Format(time.RFC3339)).
		With("quarantined", d.Key.Agent)
}

// DesiredStates stores desired states. A stored state outlives its writer and the instance, until RemoveDesired
// removes it.
type DesiredStates interface {
	// SetDesired stores desired states, each in place of the previous one with the same key. It writes up to 100
	// in one transaction. The mode is system_network or system_timeout if the registry is unreachable; some or all
	// states may then be stored or not.
	SetDesired(ctx context.Context, desires ...DesiredState) error
	// RemoveDesired removes the desired state of a whole agent, or of an instance that is not registered. It is
	// idempotent. Its modes are the ones of SetDesired.
	RemoveDesired(ctx context.Context, key Key) error
	// WatchDesiredStates calls apply with all desired states, and again after each change, until ctx ends; then it
	// returns nil. It may combine changes in quick succession. While the registry is unreachable, the last states
	// stay valid and WatchDesiredStates retries. Calls of apply do not overlap, and apply may keep the map.
	WatchDesiredStates(ctx context.Context, apply func(map[Key]DesiredState)) error
}
