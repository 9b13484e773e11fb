package registry

import (
	"context"
	"time"

	"github.com/troupe-dev/troupe/pkg/failure"
)

// Desire is what operators want of an instance, kept apart from its registration: the
// worker writes one, operators the other (guarantees 2.6). One whose key has no id is of the
// agent as a whole, of instances that are still to come too; only Quarantine is, and it is
// forgotten whoever is registered.
type Desire struct {
	Key    Key
	Want   Want
	Reason string    // as the operator gave it
	Since  time.Time // when it was asked for
}

// Want is a desired state, as it is stored.
type Want string

// The desired states. An instance of which nothing is recorded shall run.
const (
	Run   Want = "RUN"
	Pause Want = "PAUSE"
	Drain Want = "DRAIN"
	// Quarantine is of an agent as a whole: it is shut out (S18).
	Quarantine Want = "QUARANTINE"
)

// Whole is the key of what is wanted of an agent as a whole.
func Whole(agent string) Key { return Key{Agent: agent} }

// Whole reports whether it is the key of an agent, and of none of its instances.
func (k Key) Whole() bool { return k.ID == "" }

// Quarantined are the desires that shut an agent out, by agent. What this version does not know
// of an agent as a whole counts as such.
func Quarantined(desires map[Key]Desire) map[string]Desire {
	out := map[string]Desire{}
	for key, d := range desires {
		if key.Whole() && !d.Want.Routable() {
			out[key.Agent] = d
		}
	}
	return out
}

// Routable reports whether an instance of which this is wanted may get steps. A state that
// this version does not know keeps steps away.
func (w Want) Routable() bool { return w == "" || w == Run }

// Refusal is why a call is refused, or a step ended, of an agent that the desire shuts out.
func (d Desire) Refusal(op string) error {
	return failure.Newf(failure.PolicySecurity, op, "agent %s is quarantined since %s; an operator can release it",
		d.Key.Agent, d.Since.UTC().Format(time.RFC3339)).
		With("quarantined", d.Key.Agent)
}

// Desires keeps what operators want of instances. A record outlives the process that wrote
// it, and the instance until it is forgotten.
type Desires interface {
	// Want records the desires, in one transaction for up to 100 of them: each replaces
	// what was recorded of its instance. Modes: system_network, system_timeout when the
	// registry is away; then nothing was recorded, or it is not known.
	Want(ctx context.Context, desires ...Desire) error
	// Forget removes the record of an instance, unless the instance is registered, or that of an
	// agent as a whole. It may be repeated. Modes as Want.
	Forget(ctx context.Context, key Key) error
	// WatchDesires calls apply with all that is recorded, and again after each change,
	// until ctx ends; then it returns nil. Changes close together may be told as one. When
	// the registry goes away, what was told stays valid, and WatchDesires keeps trying.
	// Calls of apply do not overlap; the map is the callee's.
	WatchDesires(ctx context.Context, apply func(map[Key]Desire)) error
}
