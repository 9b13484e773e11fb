package etcdtest

import (
	"context"
	"errors"
	"testing"

	"github.com/stretchr/testify/require"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
	"google.golang.org/grpc/credentials"

	"github.com/troupe-dev/troupe/internal/registry/etcdregistry"
)

// MayRead reports whether etcd allows the client to read a key.
func MayRead(t testing.TB, client *clientv3.Client, key string) bool {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), waitTimeout)
	defer cancel()
	_, err := client.Get(ctx, key)
	return isPermitted(t, err)
}

// MayWrite reports whether etcd allows the client to write a key. It tries a put, a delete, and a transaction
// whose condition does not hold. Afterwards the key does not exist.
func MayWrite(t testing.TB, client *clientv3.Client, key string) bool {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), waitTimeout)
	defer cancel()
	_, put := client.Put(ctx, key, "x")
	_, del := client.Delete(ctx, key)
	_, txn := client.Txn(ctx).If(clientv3.Compare(clientv3.CreateRevision(key), ">", 0)).Then(clientv3.OpPut(key, "x")).Commit()
	require.Equal(t, isPermitted(t, put), isPermitted(t, del), "%s: put and delete need the same right", key)
	require.Equal(t, isPermitted(t, put), isPermitted(t, txn), "%s: a transaction must not bypass the right", key)
	return isPermitted(t, put)
}

func isPermitted(t testing.TB, err error) bool {
	t.Helper()
	if errors.Is(err, rpctypes.ErrPermissionDenied) || errors.Is(err, rpctypes.ErrUserEmpty) {
		return false
	}
	require.NoError(t, err)
	return true
}

// PlaintextClient returns a client that connects without TLS.
func (e *Etcd) PlaintextClient() *clientv3.Client {
	e.t.Helper()
	client, err := etcdregistry.Dial([]string{e.server.Endpoints()[0][len("https://"):]}, zap.NewNop())
	require.NoError(e.t, err)
	e.t.Cleanup(func() { require.NoError(e.t, client.Close()) })
	return client
}

// AnonymousClient returns a client that trusts etcd's certificate and has none of its own.
func (e *Etcd) AnonymousClient() *clientv3.Client {
	e.t.Helper()
	creds, err := credentials.NewClientTLSFromFile(e.dir+"/ca.crt", "")
	require.NoError(e.t, err)
	return e.ClientWith(creds)
}
