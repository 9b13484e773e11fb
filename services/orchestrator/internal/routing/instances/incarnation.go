package instances

import "github.com/troupe-dev/troupe/internal/registry"

// Incarnation identifies one process of an instance. An instance that registers again is another incarnation,
// without earlier failures.
type Incarnation struct {
	registry.Key
	Number int64
}

// IncarnationOf returns the incarnation that an instance registered.
func IncarnationOf(in registry.Instance) Incarnation { return Incarnation{in.Key(), in.Incarnation} }
