package registry

import (
	"context"
	"time"
)

// Desire is what operators want of an instance, kept apart from its registration: the
// worker writes one, operators the other (guarantees 2.6).
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
)

// Routable reports whether an instance of which this is wanted may get steps. A state that
// this version does not know keeps steps away.
func (w Want) Routable() bool { return w == "" || w == Run }

// Desires keeps what operators want of instances. A record outlives the process that wrote
// it, and the instance until it is forgotten.
type Desires interface {
	// Want records the desires, in one transaction for up to 100 of them: each replaces
	// what was recorded of its instance. Modes: system_network, system_timeout when the
	// registry is away; then nothing was recorded, or it is not known.
	Want(ctx context.Context, desires ...Desire) error
	// Forget removes the record of an instance, unless the instance is registered. It may
	// be repeated. Modes as Want.
	Forget(ctx context.Context, key Key) error
	// WatchDesires calls apply with all that is recorded, and again after each change,
	// until ctx ends; then it returns nil. Changes close together may be told as one. When
	// the registry goes away, what was told stays valid, and WatchDesires keeps trying.
	// Calls of apply do not overlap; the map is the callee's.
	WatchDesires(ctx context.Context, apply func(map[Key]Desire)) error
}
