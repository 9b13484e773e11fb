package registry

import "context"

// StoreRecord describes the data of a store, such as Redis, but is kept outside of it. It shows when the store has
// lost its latest writes (guarantee F7).
type StoreRecord struct {
	Generation int64  // increased whenever the store may have lost writes
	Beat       int64  // lower bound of the counter kept in the store
	Identity   string // id of the data of this generation
}

// StoreRecords holds one StoreRecord for each store, by the store's name. It is safe for concurrent use.
type StoreRecords interface {
	// Load returns the record and its revision (0 if there is none). Modes: system_network, system_timeout if
	// the registry is unreachable.
	Load(ctx context.Context, name string) (StoreRecord, int64, error)
	// Swap writes the record if the stored revision is still the given one (0 means that no record may exist). It
	// reports whether it wrote the record. Modes are as for Load; after an error the outcome is unknown.
	Swap(ctx context.Context, name string, r StoreRecord, revision int64) (bool, error)
}
