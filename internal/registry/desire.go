package registry

import (
	"context"
	"time"

	"github.com/troupe-dev/troupe/pkg/failure"
)

// DesiredState is the desired state of an instance. Operators write it and the worker writes the registration, so the
// two are stored separately (guarantees 2.6). A key without an id means the agent as a whole, including future
// instances. Only Quarantine is used that way, and it can be removed while instances are registered.
type DesiredState struct {
	Key    Key
	Kind   DesiredKind
	Reason string    // given by the operator
	Since  time.Time // time of the request
}

// DesiredKind is the name of a desired state, as it is stored.
type DesiredKind string

// The desired states. The default of an instance is Run.
const (
	Run   DesiredKind = "RUN"
	Pause DesiredKind = "PAUSE"
	Drain DesiredKind = "DRAIN"
	// Quarantine excludes an agent as a whole (S18).
	Quarantine DesiredKind = "QUARANTINE"
)

// AgentKey returns the key of an agent as a whole.
func AgentKey(agent string) Key { return Key{Agent: agent} }

// IsWholeAgent reports whether the key means an agent rather than one of its instances.
func (k Key) IsWholeAgent() bool { return k.ID == "" }

// QuarantinedAgents returns the desired states that exclude an agent, by agent. An unknown state of an agent as a
// whole counts as quarantine.
func QuarantinedAgents(desires map[Key]DesiredState) map[string]DesiredState {
	out := map[string]DesiredState{}
	for key, d := range desires {
		if key.IsWholeAgent() && !d.Kind.AllowsSteps() {
			out[key.Agent] = d
		}
	}
	return out
}

// AllowsSteps reports whether an instance with this desired state may get steps. An unknown state means no.
func (w DesiredKind) AllowsSteps() bool { return w == "" || w == Run }

// QuarantineError returns the error for a call or step of a quarantined agent.
func (d DesiredState) QuarantineError(op string) error {
	return failure.Newf(failure.PolicySecurity, op, "agent %s is quarantined since %s; an operator can release it",
		d.Key.Agent, d.Since.UTC().Format(time.RFC3339)).
		With("quarantined", d.Key.Agent)
}

// DesiredStates stores desired states. A record outlives its writer and the instance, until it is forgotten.
type DesiredStates interface {
	// SetDesired stores desired states and replaces the previous one of each instance, up to 100 in one transaction.
	// Modes: system_network, system_timeout if the registry is unreachable; then none may be stored, or the
	// outcome is unknown.
	SetDesired(ctx context.Context, desires ...DesiredState) error
	// Forget removes the desired state of an agent as a whole, or of an instance that is not registered. It is
	// idempotent. Modes as SetDesired.
	Forget(ctx context.Context, key Key) error
	// WatchDesires calls apply with all desired states, and again after each change, until ctx ends; then it
	// returns nil. Changes in quick succession may come as one. While the registry is unreachable the last
	// states stay valid and WatchDesires retries. Calls of apply do not overlap; apply may keep the map.
	WatchDesires(ctx context.Context, apply func(map[Key]DesiredState)) error
}
