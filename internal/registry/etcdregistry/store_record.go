package etcdregistry

import (
	"context"
	"encoding/json"
	"fmt"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/troupe-dev/troupe/internal/registry"
)

// DefaultStorePrefix is the default prefix of the keys with store records.
const DefaultStorePrefix = "/troupe/v1/store"

// StoreRecords implements registry.StoreRecords. It keeps each store's record under a key without a lease. It is
// safe for concurrent use.
type StoreRecords struct {
	client *clientv3.Client
	prefix string // with a trailing slash
}

// NewStoreRecords returns the store records under the prefix (empty means DefaultStorePrefix). The caller still
// has to close the client.
func NewStoreRecords(client *clientv3.Client, prefix string) *StoreRecords {
	if prefix == "" {
		prefix = DefaultStorePrefix
	}
	return &StoreRecords{client, prefix + "/"}
}

// storeRecord is the stored form of a registry.StoreRecord.
type storeRecord struct {
	Generation int64  `json:"generation"`
	Beat       int64  `json:"beat"`
	Identity   string `json:"identity"`
}

// Load implements registry.StoreRecords.
func (s *StoreRecords) Load(ctx context.Context, name string) (registry.StoreRecord, int64, error) {
	const op = "registry.LoadStore"
	call, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	found, err := s.client.Get(call, s.prefix+name)
	if err != nil {
		return registry.StoreRecord{}, 0, newCallError(ctx, s.client, op, err)
	}
	if len(found.Kvs) == 0 {
		return registry.StoreRecord{}, 0, nil
	}
	var r storeRecord
	if err := json.Unmarshal(found.Kvs[0].Value, &r); err != nil {
		return registry.StoreRecord{}, 0, fmt.Errorf("%s: the key %s of etcd holds no record of a store: %w", op, s.prefix+name, err)
	}
	return registry.StoreRecord(r), found.Kvs[0].ModRevision, nil
}

// Swap implements registry.StoreRecords.
func (s *StoreRecords) Swap(ctx context.Context, name string, r registry.StoreRecord, revision int64) (bool, error) {
	value, err := json.Marshal(storeRecord(r))
	if err != nil {
		return false, err
	}
	call, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	done, err := s.client.Txn(call).
		If(clientv3.Compare(clientv3.ModRevision(s.prefix+name), "=", revision)).
		Then(clientv3.OpPut(s.prefix+name, string(value))).
		Commit()
	if err != nil {
		return false, newCallError(ctx, s.client, "registry.SwapStore", err)
	}
	return done.Succeeded, nil
}
