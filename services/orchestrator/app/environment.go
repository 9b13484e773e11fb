package app

import (
	"time"

	"github.com/troupe-dev/troupe/internal/registry"
	"github.com/troupe-dev/troupe/internal/rpc"
	"github.com/troupe-dev/troupe/services/orchestrator/app/internal/discovery"
	"github.com/troupe-dev/troupe/services/orchestrator/app/internal/stores"
)

// Environment is what an orchestrator uses outside of its process. The zero value is TCP, Redis and etcd. The
// simulation replaces all three.
type Environment struct {
	Network  rpc.Network
	Traces   *TracesInRAM      // the store of traces (nil means Redis)
	Registry registry.Registry // nil means etcd
}

// TracesInRAM keeps traces in RAM. Several orchestrators may share them.
type TracesInRAM = stores.TracesInRAM

// NewTracesInRAM returns an empty store. clock is the time of the store (nil means time.Now).
func NewTracesInRAM(clock func() time.Time) *TracesInRAM { return stores.NewTracesInRAM(clock) }

func (e Environment) stores() stores.Environment {
	env := stores.Environment{Network: e.Network}
	if e.Traces != nil {
		env.Traces = e.Traces
	}
	return env
}

func (e Environment) discovery() discovery.Environment {
	return discovery.Environment{Network: e.Network, Registry: e.Registry}
}
