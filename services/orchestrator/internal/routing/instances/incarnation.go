package instances

import "github.com/troupe-dev/troupe/internal/registry"

// Incarnation identifies one process of an instance. A restarted instance is a new incarnation, without the
// failures of the old one.
type Incarnation struct {
	registry.Key
	Number int64
}

// IncarnationOf returns the incarnation of a registered instance.
func IncarnationOf(in registry.Instance) Incarnation { return Incarnation{in.Key(), in.Incarnation} }
