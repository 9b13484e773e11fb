// Package registry defines service discovery: which instances are alive, each registered under a lease. Package
// etcdregistry implements it over etcd, and package inmem in memory; package registrytest is the test suite for
// both.
//
// The registry holds only registrations, desired states and store records. It holds no load figures, no
// conversations and nothing per turn (guarantees, section 2.6).
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
	Version     string // version of the agent
	Description string // written by the worker; shown to people, never to a model (guarantee S14); a Watcher returns it as one line
	State       lifecycle.State
	Capacity    int
	Incarnation int64 // assigned by the registry; grows with every registration
	Started     time.Time
	// Capabilities are special abilities of the instance, sorted. A step may require some of them.
	Capabilities []string
	// Tools are the tools of the agent, in order.
	Tools []Tool
	// ConfigProtocol says how the agent resolves concurrent changes of its configuration (empty if it owns no
	// configuration, C-25).
	ConfigProtocol ownership.Protocol
}

// SingleLine converts a text from a worker's registration to one line of at most MaxTextBytes. It drops invisible
// and control characters.
func SingleLine(text string) string {
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
	return conversation.Truncate(strings.Join(strings.Fields(shown), " "), MaxTextBytes)
}

// Tool is a tool of an agent, as a worker registers it.
type Tool struct {
	Name         string
	Capabilities []string // abilities of the tool, sorted; steps may require some of them
}

// Equal reports whether both tools have the same name and capabilities.
func (t Tool) Equal(other Tool) bool {
	return t.Name == other.Name && slices.Equal(t.Capabilities, other.Capabilities)
}

// Registrar adds instances to the registry.
type Registrar interface {
	// Register creates the registration under a lease, which is renewed until Close. It blocks until the
	// registration is stored or ctx ends. If another instance has the same agent and id, the error has mode
	// agent_state. The state is registered unchanged; only READY instances get steps (contract C-34).
	Register(ctx context.Context, in Instance) (Registration, error)
}

// Registration is the registration of one instance of this process.
type Registration interface {
	// SetState changes the registered state in one transaction. The error has mode agent_state if the registration
	// was lost.
	SetState(ctx context.Context, s lifecycle.State) error
	// Lease returns the status of the lease, and a channel that is closed when the status changes. The status is
	// UNKNOWN while the registry is unreachable. It is EXPIRED from the loss of the registration until the
	// instance is registered again (guarantees F9, F11).
	Lease() (lifecycle.Lease, <-chan struct{})
	// Close removes the registration and its lease. It may be called more than once. If the registry is
	// unreachable, the lease expires by itself.
	Close(ctx context.Context) error
}

// Watcher reports which instances are registered, and each change.
type Watcher interface {
	// Watch calls apply with a list of all instances, then with every change in order, until ctx ends; then it
	// returns nil. If the registry becomes unreachable, apply gets an Update with Unreachable, and Watch retries.
	// The next Update is then a complete list, so no change is missed. Calls of apply do not overlap.
	Watch(ctx context.Context, apply func(Update)) error
}

// Registry combines registration, watching and desired states.
type Registry interface {
	Registrar
	Watcher
	DesiredStates
}

// Update is one step of a watch. Exactly one of its fields is set.
type Update struct {
	List        *[]Instance // all instances, which replace the known ones
	Put         *Instance   // a new or changed instance
	Delete      *Key        // a removed instance
	Unreachable error       // why the registry is unreachable; the known instances stay valid
}

// Key identifies a registration by its agent and instance id.
type Key struct{ Agent, ID string }

// Key returns the key of the instance.
func (in Instance) Key() Key { return Key{in.Agent, in.ID} }

// Equal reports whether both registrations are the same in every field.
func (in Instance) Equal(other Instance) bool {
	return in.Key() == other.Key() && in.Address == other.Address && in.Version == other.Version && in.Description == other.Description &&
		in.State == other.State && in.Capacity == other.Capacity && in.Incarnation == other.Incarnation && in.Started.Equal(other.Started) &&
		slices.Equal(in.Capabilities, other.Capabilities) && slices.EqualFunc(in.Tools, other.Tools, Tool.Equal) && in.ConfigProtocol == other.ConfigProtocol
}
