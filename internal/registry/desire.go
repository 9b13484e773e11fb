package registry

import (
	"context"
	"time"

	"github.com/troupe-dev/troupe/pkg/failure"
)

// Desire is the desired state of an instance. Operators write it and the worker writes the registration, so the
// two are stored separately (guarantees 2.6). A key without an id means the agent as a whole, including future
// instances. Only Quarantine is used that way, and it can be removed while instances are registered.
type Desire struct {
	Key    Key
	Want   Want
	Reason string    // given by the operator
	Since  time.Time // time of the request
}

// Want is the name of a desired state, as it is stored.
type Want string

// The desired states. The default of an instance is Run.
const (
	Run   Want = "RUN"
	Pause Want = "PAUSE"
	Drain Want = "DRAIN"
	// Quarantine excludes an agent as a whole (S18).
	Quarantine Want = "QUARANTINE"
)

// Whole returns the key of an agent as a whole.
func Whole(agent string) Key { return Key{Agent: agent} }

// Whole reports whether the key means an agent rather than one of its instances.
func (k Key) Whole() bool { return k.ID == "" }

// Quarantined returns the desired states that exclude an agent, by agent. An unknown state of an agent as a
// whole counts as quarantine.
func Quarantined(desires map[Key]Desire) map[string]Desire {
	out := map[string]Desire{}
	for key, d := range desires {
		if key.Whole() && !d.Want.Routable() {
			out[key.Agent] = d
		}
	}
	return out
}

// Routable reports whether an instance with this desired state may get steps. An unknown state means no.
func (w Want) Routable() bool { return w == "" || w == Run }

// Refusal returns the error for a call or step of a quarantined agent.
func (d Desire) Refusal(op string) error {
	return failure.Newf(failure.PolicySecurity, op, "agent %s is quarantined since %s; an operator can release it",
		d.Key.Agent, d.Since.UTC().Format(time.RFC3339)).
		With("quarantined", d.Key.Agent)
}

// Desires stores desired states. A record outlives its writer and the instance, until it is forgotten.
type Desires interface {
	// Want stores desired states and replaces the previous one of each instance, up to 100 in one transaction.
	// Modes: system_network, system_timeout if the registry is unreachable; then none may be stored, or the
	// outcome is unknown.
	Want(ctx context.Context, desires ...Desire) error
	// Forget removes the desired state of an agent as a whole, or of an instance that is not registered. It is
	// idempotent. Modes as Want.
	Forget(ctx context.Context, key Key) error
	// WatchDesires calls apply with all desired states, and again after each change, until ctx ends; then it
	// returns nil. Changes in quick succession may come as one. While the registry is unreachable the last
	// states stay valid and WatchDesires retries. Calls of apply do not overlap; apply may keep the map.
	WatchDesires(ctx context.Context, apply func(map[Key]Desire)) error
}
