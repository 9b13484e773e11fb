// Package registry is the contract of discovery: which instances are alive, each under a lease. It is
// implemented over etcd (etcdregistry) and in RAM (inmem); registrytest is the test suite.
//
// The registry holds nothing but registrations, desired states and the records of stores: no load figures, no
// conversation, nothing per turn (guarantees 2.6).
package registry

import (
	"context"
	"slices"
	"strings"
	"time"
	"unicode"

	"github.com/troupe-dev/troupe/internal/lifecycle"
	"github.com/troupe-dev/troupe/pkg/conversation"
	"github.com/troupe-dev/troupe/pkg/ownership"
)

// Instance is the registration of one running worker.
type Instance struct {
	ID          string
	Agent       string
	Address     string // host:port of its gRPC server
	Version     string // of the agent
	Description string // from the worker; shown to people, never to a model (S14); a Watcher returns it as one Line
	State       lifecycle.State
	Capacity    int
	Incarnation int64 // assigned by the registry; grows with every registration
	Started     time.Time
	// Capabilities are special abilities of the instance, sorted. A step may require some.
	Capabilities []string
	// Tools are the tools of the agent, in order.
	Tools []Tool
	// Config is the protocol of the agent's configuration; empty: it owns none (C-25).
	Config ownership.Protocol
}

// Line converts a text that a worker registered to one line of at most MaxText bytes, without invisible or
// control characters.
func Line(text string) string {
	shown := strings.Map(func(r rune) rune {
		switch {
		case unicode.IsSpace(r):
			return ' '
		case unicode.IsPrint(r):
			return r
		default:
			return -1
		}
	}, text)
	return conversation.Cut(strings.Join(strings.Fields(shown), " "), MaxText)
}

// Tool is a tool of an agent, as its instances register it.
type Tool struct {
	Name         string
	Capabilities []string // what it can do, sorted; steps may need some of it
}

// Equal reports whether two tools are the same.
func (t Tool) Equal(other Tool) bool {
	return t.Name == other.Name && slices.Equal(t.Capabilities, other.Capabilities)
}

// Registrar registers instances.
type Registrar interface {
	// Register creates the registration under a lease that is renewed until Close. It blocks until the
	// registration is stored or ctx ends. Another instance with the same agent and id is an error of mode
	// agent_state. The state is registered as given: only READY instances get steps (contract C-34).
	Register(ctx context.Context, in Instance) (Registration, error)
}

// Registration is the registration of this process.
type Registration interface {
	// SetState changes the registered state in one transaction. Modes: agent_state if the registration was
	// lost.
	SetState(ctx context.Context, s lifecycle.State) error
	// Lease returns what is known about the lease, and a channel that is closed when that changes. It is
	// UNKNOWN while the registry is unreachable. It is EXPIRED from the loss of the registration until it
	// exists again (guarantees F9, F11).
	Lease() (lifecycle.Lease, <-chan struct{})
	// Close removes the registration and its lease. It may be called more than once. If the registry is
	// unreachable, the lease expires by itself.
	Close(ctx context.Context) error
}

// Watcher reports which instances are registered.
type Watcher interface {
	// Watch calls apply with all instances, then with every change in order, until ctx ends; then it returns
	// nil. If the registry becomes unreachable, apply gets an Update with Away and Watch retries. After that
	// the next Update is a whole list, so nothing is missed. Calls of apply do not overlap.
	Watch(ctx context.Context, apply func(Update)) error
}

// Registry combines all interfaces of the registry.
type Registry interface {
	Registrar
	Watcher
	DesiredStates
}

// Update is one step of a watch. Exactly one of its fields is set.
type Update struct {
	List   *[]Instance // all instances; replaces what was known
	Put    *Instance   // a new or changed instance
	Delete *Key        // a removed instance
	Away   error       // the registry is unreachable; what was known stays valid
}

// Key identifies a registration.
type Key struct{ Agent, ID string }

// Key returns the key of the instance.
func (in Instance) Key() Key { return Key{in.Agent, in.ID} }

// Equal reports whether two registrations are the same in every field.
func (in Instance) Equal(other Instance) bool {
	return in.Key() == other.Key() && in.Address == other.Address && in.Version == other.Version && in.Description == other.Description &&
		in.State == other.State && in.Capacity == other.Capacity && in.Incarnation == other.Incarnation && in.Started.Equal(other.Started) &&
		slices.Equal(in.Capabilities, other.Capabilities) && slices.EqualFunc(in.Tools, other.Tools, Tool.Equal) && in.Config == other.Config
}
