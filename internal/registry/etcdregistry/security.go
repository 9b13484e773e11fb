package etcdregistry

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"go.uber.org/zap"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/troupe-dev/troupe/internal/identity"
	"github.com/troupe-dev/troupe/pkg/failure"
)

// Security holds the paths of the certificate files for connections to etcd. Each may be empty. The files are read
// for each connection, so they can be replaced while the process runs. The tags define the flags and environment
// variables of every program.
type Security struct {
	CA   string `name:"ca" help:"PEM file with the CAs of etcd (empty means --tls-ca)." env:"TROUPE_ETCD_CA" type:"path" default:"" placeholder:"FILE"`
	Cert string `name:"cert" help:"PEM file with the etcd certificate (empty means --tls-cert)." env:"TROUPE_ETCD_CERT" type:"path" default:"" placeholder:"FILE"`
	Key  string `name:"key" help:"PEM file with its key." env:"TROUPE_ETCD_KEY" type:"path" default:"" placeholder:"FILE"`
}

// Credentials returns the credentials for etcd at the addresses: mutual TLS 1.3 if they begin with https://, and
// plain text otherwise. Files that are not configured default to the certificate of the process and the CAs of its
// mesh.
func (s Security) Credentials(endpoints []string, self *identity.Source, log *zap.Logger) (credentials.TransportCredentials, error) {
	secure := 0
	for _, e := range endpoints {
		if strings.HasPrefix(e, "https://") {
			secure++
		}
	}
	switch {
	case secure == 0 && s != Security{}:
		return nil, errors.New("--etcd: certificates are given, and the addresses do not ask for TLS; begin them with https://")
	case secure == 0:
		return insecure.NewCredentials(), nil
	case secure < len(endpoints):
		return nil, fmt.Errorf("--etcd: of %q some ask for TLS and others do not; begin all with https://", endpoints)
	}
	return identity.ExternalCredentials("etcd", identity.TLSFiles(s), self, log)
}

// isDenied reports whether err means that etcd denied the request.
func isDenied(err error) bool {
	return errors.Is(err, rpctypes.ErrPermissionDenied) || errors.Is(err, rpctypes.ErrUserEmpty) || errors.Is(err, rpctypes.ErrUserNotFound)
}

// checkAuthEnabled returns an error while etcd requires certificates but has authentication disabled, because any
// holder of a certificate could then write every key. Without TLS it checks nothing. Once authentication is
// enabled, only root may read its status, so being denied counts as enabled.
func (r *Registry) checkAuthEnabled(ctx context.Context, op string) error {
	if !strings.HasPrefix(r.client.Endpoints()[0], "https://") {
		return nil
	}
	status, err := r.client.AuthStatus(ctx)
	switch {
	case isDenied(err):
		return nil
	case err != nil:
		return r.callError(ctx, op, err)
	case !status.Enabled:
		return failure.Newf(failure.PolicySecurity, op, "the registry (etcd at %s) has no authentication yet, "+
			"so anyone with a certificate may do everything there; "+
			"create users and roles with troupe provision etcd", strings.Join(r.client.Endpoints(), ", "))
	}
	return nil
}
