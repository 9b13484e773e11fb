package registry

import "context"

// StoreRecord describes the data of a store, kept outside of the store. It shows whether the data went back in
// time (guarantees F7).
type StoreRecord struct {
	Generation int64  // grows whenever the data may have lost writes
	Beat       int64  // lower bound of the store's counter
	Identity   string // identity of the data with this generation
}

// StoreRecords holds a StoreRecord for each store, by name. It is safe for concurrent use.
type StoreRecords interface {
	// Load returns the record and its revision (0 if there is none). Modes: system_network, system_timeout if
	// the registry is unreachable.
	Load(ctx context.Context, name string) (StoreRecord, int64, error)
	// Swap writes the record if its revision is still the given one (0 if there must be none). It returns
	// whether it did. Modes as Load; then the outcome is unknown.
	Swap(ctx context.Context, name string, r StoreRecord, revision int64) (bool, error)
}
