// Package identity gives each process of the mesh an identity and proves it. The identity is a SPIFFE id in an
// X.509 certificate, which both sides present in TLS 1.3. Peers verify the id and never the host name, so a worker
// keeps its identity at every address.
//
// A nil *Source stands for a process without an identity. Such a process speaks plain text and must stay on
// loopback (Config.CheckAddress).
package identity

import (
	"fmt"
	"net/url"
	"path"
	"strings"

	"github.com/spiffe/go-spiffe/v2/spiffeid"
)

// Role is the kind of a caller. It determines which methods the caller may call.
type Role string

// The roles.
const (
	Orchestrator Role = "orchestrator"
	Memory       Role = "memory"
	Worker       Role = "worker"
	Admin        Role = "admin"   // an operator
	Client       Role = "client"  // belongs to one tenant and authenticates by a token, never by a certificate of the mesh
	Anybody      Role = "anybody" // a caller of a port without authentication
)

// ID is the identity of a process (guarantees, section 4.1):
//
//	spiffe://<trust domain>/orchestrator
//	spiffe://<trust domain>/memory
//	spiffe://<trust domain>/worker/<agent>
//	spiffe://<trust domain>/admin/<name>
//
// IDs can be compared with ==.
type ID struct {
	TrustDomain string
	Role        Role
	Name        string // the agent of a worker or the name of an admin (empty for other roles)
}

// String returns the SPIFFE id.
func (id ID) String() string { return id.toURL().String() }

func (id ID) toURL() *url.URL {
	return &url.URL{Scheme: "spiffe", Host: id.TrustDomain, Path: path.Join("/", string(id.Role), id.Name)}
}

// EtcdUser returns the user name of the process in etcd. It is the path of the id, such as memory or
// worker/research. The certificate contains it as the common name, which X.520 limits to 64 characters.
func (id ID) EtcdUser() string { return path.Join(string(id.Role), id.Name) }

// Parse parses a SPIFFE id. It fails if the path does not belong to a process of the mesh.
func Parse(text string) (ID, error) {
	id, err := spiffeid.FromString(text)
	if err != nil {
		return ID{}, fmt.Errorf("%q is not a SPIFFE id: %w", text, err)
	}
	return idFromSPIFFE(id)
}

func idFromSPIFFE(id spiffeid.ID) (ID, error) {
	is := ID{TrustDomain: id.TrustDomain().Name()}
	role, name, more := strings.Cut(strings.TrimPrefix(id.Path(), "/"), "/")
	is.Role, is.Name = Role(role), name
	known := (is.Role == Orchestrator || is.Role == Memory) && !more ||
		(is.Role == Worker || is.Role == Admin) && name != "" && !strings.Contains(name, "/")
	if !known {
		return ID{}, fmt.Errorf("%s is not a process of a mesh; its path must be /orchestrator, /memory, /worker/<agent> or /admin/<name>", id)
	}
	return is, nil
}

// validate returns an error if the ID is invalid.
func (id ID) validate() error {
	again, err := Parse(id.String())
	if err == nil && again != id {
		err = fmt.Errorf("%s is not a valid id for the role %s", id, id.Role)
	}
	return err
}
