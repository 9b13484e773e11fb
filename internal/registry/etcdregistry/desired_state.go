package etcdregistry

import (
	"context"
	"encoding/json"
	"maps"
	"slices"
	"time"

	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"

	"github.com/troupe-dev/troupe/internal/registry"
)

// storedDesiredState is the stored form of a registry.DesiredState.
type storedDesiredState struct {
	Kind   registry.DesiredKind `json:"want"`
	Reason string               `json:"reason,omitempty"`
	Since  time.Time            `json:"since"`
}

// maxOps limits the operations of one transaction; etcd accepts 128.
const maxOps = 100

// SetDesired implements registry.DesiredStates.
func (r *Registry) SetDesired(ctx context.Context, desires ...registry.DesiredState) error {
	ops := make([]clientv3.Op, 0, len(desires))
	for _, d := range desires {
		value, err := json.Marshal(storedDesiredState{d.Kind, d.Reason, d.Since})
		if err != nil {
			return err
		}
		ops = append(ops, clientv3.OpPut(pathFromKey(r.desiredPrefix, d.Key), string(value)))
	}
	for some := range slices.Chunk(ops, maxOps) {
		call, cancel := context.WithTimeout(ctx, callTimeout)
		_, err := r.client.Txn(call).Then(some...).Commit()
		cancel()
		if err != nil {
			return r.callError(ctx, "registry.SetDesired", err)
		}
	}
	return nil
}

// RemoveDesired implements registry.DesiredStates.
func (r *Registry) RemoveDesired(ctx context.Context, key registry.Key) error {
	call, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	_, err := r.client.Txn(call).
		If(clientv3.Compare(clientv3.CreateRevision(r.instancePath(key)), "=", 0)).
		Then(clientv3.OpDelete(pathFromKey(r.desiredPrefix, key))).
		Commit()
	if err != nil {
		return r.callError(ctx, "registry.Forget", err)
	}
	return nil
}

// WatchDesiredStates implements registry.DesiredStates.
func (r *Registry) WatchDesiredStates(ctx context.Context, apply func(map[registry.Key]registry.DesiredState)) error {
	known := map[registry.Key]registry.DesiredState{}
	learn := func(kv *mvccpb.KeyValue) {
		var d storedDesiredState
		if err := json.Unmarshal(kv.Value, &d); err != nil {
			r.log.Warn("a key in the registry holds no desired state", zap.ByteString("key", kv.Key), zap.Error(err))
			return
		}
		key := keyFromPath(r.desiredPrefix, kv.Key)
		known[key] = registry.DesiredState{Key: key, Kind: d.Kind, Reason: d.Reason, Since: d.Since}
	}
	return r.watchKeys(ctx, keyHandler{
		prefix: r.desiredPrefix,
		onList: func(kvs []*mvccpb.KeyValue) {
			clear(known)
			for _, kv := range kvs {
				learn(kv)
			}
			apply(maps.Clone(known))
		},
		onChange: func(events []*clientv3.Event) {
			for _, e := range events {
				if e.Type == clientv3.EventTypeDelete {
					delete(known, keyFromPath(r.desiredPrefix, e.Kv.Key))
				} else {
					learn(e.Kv)
				}
			}
			apply(maps.Clone(known))
		},
		onOutage: func(error) {},
	})
}
