package etcdregistry

import (
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/troupe-dev/troupe/pkg/failure"
)

// Dial returns a client of the etcd cluster whose members have the given addresses, host:port. It does not wait
// for a connection; each call waits within its own context. The client avoids a member that does not answer pings,
// which gRPC sends at most every 10 s. Close the client after everything that uses it. Modes: user_invalid_input.
func Dial(endpoints []string, log *zap.Logger) (*clientv3.Client, error) {
	return DialWith(insecure.NewCredentials(), endpoints, log)
}

// DialWith is like Dial with the given TLS credentials; see Security.
func DialWith(creds credentials.TransportCredentials, endpoints []string, log *zap.Logger) (*clientv3.Client, error) {
	if len(endpoints) == 0 {
		return nil, failure.New(failure.UserInvalidInput, "registry.Dial",
			"no address of etcd is given: name at least one as host:port")
	}
	client, err := clientv3.New(clientv3.Config{
		Endpoints:            endpoints,
		DialKeepAliveTime:    2 * time.Second,
		DialKeepAliveTimeout: time.Second,
		DialOptions: []grpc.DialOption{grpc.WithTransportCredentials(creds), grpc.WithConnectParams(grpc.ConnectParams{
			// This is shorter than the timeout of a call, so that a call can still reach an etcd that has just
			// recovered.
			Backoff:           backoff.Config{BaseDelay: 100 * time.Millisecond, Multiplier: 1.6, Jitter: 0.2, MaxDelay: callTimeout / 2},
			MinConnectTimeout: callTimeout,
		})},
		Logger: log.Named("etcd").WithOptions(zap.IncreaseLevel(zapcore.ErrorLevel)),
	})
	if err != nil {
		return nil, failure.Newf(failure.UserInvalidInput, "registry.Dial",
			"the addresses of etcd %q cannot be used: give each as host:port", endpoints).Because(err)
	}
	return client, nil
}
