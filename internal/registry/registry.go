// Package registry is the contract of discovery: who is alive, under a lease. It is
// implemented over etcd (etcdregistry) and in RAM (inmem); registrytest is the suite.
//
// Nothing but registrations is kept there: no load figures, no conversation, nothing per
// turn (guarantees 2.6).
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

// Instance is one running worker's registration.
type Instance struct {
	ID          string
	Agent       string
	Address     string // host:port of its gRPC server
	Version     string // of the agent
	Description string // one line, as the worker says; for people, and for no model (S14). Those of a Watcher are as Line has it
	State       lifecycle.State
	Capacity    int
	Incarnation int64 // given by the registry; grows with every registration
	Started     time.Time
	// Capabilities are what it can do beyond other instances, sorted; steps may need some.
	Capabilities []string
	// Tools are those of the agent, in order.
	Tools []Tool
	// Config is the protocol of the agent's configuration; empty: it owns none (C-25).
	Config ownership.Protocol
}

// Line is a text that a worker registered on one line of at most MaxText bytes, with nothing that
// nobody sees or that commands a terminal.
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
	// Register creates the registration under a lease that is kept alive until Close.
	// It blocks until the registry has it or ctx ends. An instance with the same agent
	// and id that is not this one is an error of mode agent_state. The state is
	// registered as given: routing looks at READY only (contract C-34).
	Register(ctx context.Context, in Instance) (Registration, error)
}

// Registration is one instance's place in the registry.
type Registration interface {
	// SetState changes the registered state in one transaction that holds only while the
	// registration is still this one. Modes: agent_state when it is not.
	SetState(ctx context.Context, s lifecycle.State) error
	// Lease is what is known of the lease, and a channel that is closed when that changes.
	// While the registry does not answer it is UNKNOWN, and EXPIRED from when the registry
	// says that the registration is gone until it stands anew (guarantees F9, F11).
	Lease() (lifecycle.Lease, <-chan struct{})
	// Close removes the registration and its lease. It may be called more than once. When
	// the registry cannot be reached the lease runs out by itself.
	Close(ctx context.Context) error
}

// Watcher tells who is registered.
type Watcher interface {
	// Watch calls apply with everything that is registered, then with every change, in
	// order, until ctx ends; then it returns nil. When the registry goes away, apply gets
	// an Update that says so, Watch keeps trying, and after it is back the next Update is
	// a whole list again: nothing is missed. Calls of apply do not overlap.
	Watch(ctx context.Context, apply func(Update)) error
}

// Registry is all sides.
type Registry interface {
	Registrar
	Watcher
	Desires
}

// Update is one step of a watch; exactly one of its fields is set.
type Update struct {
	List   *[]Instance // everything that is registered; replaces what was known
	Put    *Instance   // is registered, or changed
	Delete *Key        // is gone
	Away   error       // the registry cannot be reached; what was known stays valid
}

// Key identifies a registration.
type Key struct{ Agent, ID string }

// Key of the instance.
func (in Instance) Key() Key { return Key{in.Agent, in.ID} }

// Equal reports whether two registrations say the same.
func (in Instance) Equal(other Instance) bool {
	return in.Key() == other.Key() && in.Address == other.Address && in.Version == other.Version && in.Description == other.Description &&
		in.State == other.State && in.Capacity == other.Capacity && in.Incarnation == other.Incarnation && in.Started.Equal(other.Started) &&
		slices.Equal(in.Capabilities, other.Capabilities) && slices.EqualFunc(in.Tools, other.Tools, Tool.Equal) && in.Config == other.Config
}
