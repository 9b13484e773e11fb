package registry

import "context"

// StoreRecord is what is known of the data of a store, outside of the store: enough to see
// that they went back in time (guarantees F7).
type StoreRecord struct {
	Generation int64  // grows whenever the data may have lost writes
	Beat       int64  // that the store had counted to, at least
	Identity   string // of the data that have the generation
}

// StoreRecords keeps them, by the name of the store. Safe for concurrent use.
type StoreRecords interface {
	// Load returns the record and its revision; 0 when there is none. Modes: system_network,
	// system_timeout when the registry is away.
	Load(ctx context.Context, name string) (StoreRecord, int64, error)
	// Swap writes the record if its revision is still the given one; 0: if there is none. It
	// returns whether it did. Modes as Load; then it is not known.
	Swap(ctx context.Context, name string, r StoreRecord, revision int64) (bool, error)
}
