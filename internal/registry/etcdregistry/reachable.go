package etcdregistry

import (
	"context"
	"strings"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/health/grpc_health_v1"

	"github.com/troupe-dev/troupe/internal/grpcfailure"
	"github.com/troupe-dev/troupe/internal/retry"
	"github.com/troupe-dev/troupe/pkg/failure"
)

// AwaitReachable returns nil once the etcd at one of the addresses accepts calls. It retries until ctx ends. It
// returns at once if either side rejects the other's certificate. The error names the flag to check; the etcd
// client itself would only report a timeout. Modes: system_network, policy_security.
func AwaitReachable(ctx context.Context, creds credentials.TransportCredentials, endpoints []string) error {
	var last error
	for pace := retry.NewBackoff(); ; {
		for _, at := range endpoints {
			err := tryConnect(ctx, creds, at)
			if err == nil || failure.Is(err, failure.PolicySecurity) {
				return err
			}
			if last == nil || ctx.Err() == nil { // after the deadline, keep the last useful error
				last = err
			}
		}
		if pace.Wait(ctx) != nil {
			return last
		}
	}
}

// tryConnect opens one connection and makes one call that needs no rights.
func tryConnect(ctx context.Context, creds credentials.TransportCredentials, at string) error {
	_, host, named := strings.Cut(at, "://")
	if !named {
		host = at
	}
	conn, err := grpc.NewClient(host, grpc.WithTransportCredentials(creds.Clone()))
	if err != nil {
		return failure.Newf(failure.UserInvalidInput, "registry.Reach", "--etcd: %q is no address; want https://host:port", at).Because(err)
	}
	defer func() { _ = conn.Close() }() // the call has returned
	_, err = grpc_health_v1.NewHealthClient(conn).Check(ctx, &grpc_health_v1.HealthCheckRequest{})
	fail := func(mode failure.Mode, format string, args ...any) error {
		return failure.Newf(mode, "registry.Reach", format, args...).Because(err)
	}
	switch missed, why := grpcfailure.ClassifyDialError(err); {
	case missed == grpcfailure.DialUntrusted:
		return fail(failure.PolicySecurity, "--etcd-ca: the etcd at %s is not trusted, or uses plain text: %s", at, why)
	case missed == grpcfailure.DialRejected && strings.Contains(why, "tls: "):
		return fail(failure.PolicySecurity, "--etcd-cert: the etcd at %s rejects the certificate: %s", at, why)
	case missed == grpcfailure.DialUnreachable:
		return fail(failure.SystemNetwork, "--etcd: cannot reach an etcd at %s: %s", at, why)
	case failure.Is(grpcfailure.FromStatus("registry.Reach", err), failure.SystemNetwork): // this includes a lost TLS alert
		return fail(failure.SystemNetwork, "--etcd: the server at %s closes the connection; if it is an etcd with TLS, write https://", at)
	case err != nil && ctx.Err() != nil:
		return fail(failure.SystemNetwork, "--etcd: no answer from %s in time", at)
	}
	return nil // any answer shows that etcd is reachable, even a rejection
}
