// Package identity says who a process of the mesh is, and proves it: a SPIFFE id in an X.509
// certificate, and TLS 1.3 in which both sides show theirs. What counts is the id, never the
// host name: a worker is the same at whatever address it comes up.
//
// A nil *Source is a process without an identity, which speaks plain text; it must keep to
// loopback (Config.Permit).
package identity

import (
	"fmt"
	"net/url"
	"path"
	"strings"

	"github.com/spiffe/go-spiffe/v2/spiffeid"
)

// Role is what a caller is in the mesh. It decides what it may call.
type Role string

// The roles.
const (
	Orchestrator Role = "orchestrator"
	Memory       Role = "memory"
	Worker       Role = "worker"
	Admin        Role = "admin"   // an operator
	Client       Role = "client"  // of one tenant; known by a token, never by a certificate of the mesh
	Anybody      Role = "anybody" // on a port that asks for no proof
)

// ID is who a process is (guarantees 4.1):
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
	Name        string // the agent that a worker hosts, or the admin's; of others empty
}

// String is the SPIFFE id.
func (id ID) String() string { return id.url().String() }

func (id ID) url() *url.URL {
	return &url.URL{Scheme: "spiffe", Host: id.TrustDomain, Path: path.Join("/", string(id.Role), id.Name)}
}

// User is the name by which etcd knows the process: what follows the trust domain in the id,
// such as memory or worker/research. It is the common name of the certificate, and no longer
// than 64 characters where the issuer keeps to X.520.
func (id ID) User() string { return path.Join(string(id.Role), id.Name) }

// Parse reads a SPIFFE id. One of a path that no process of the mesh has is an error.
func Parse(text string) (ID, error) {
	id, err := spiffeid.FromString(text)
	if err != nil {
		return ID{}, fmt.Errorf("%q is no SPIFFE id: %w", text, err)
	}
	return parsed(id)
}

func parsed(id spiffeid.ID) (ID, error) {
	is := ID{TrustDomain: id.TrustDomain().Name()}
	role, name, more := strings.Cut(strings.TrimPrefix(id.Path(), "/"), "/")
	is.Role, is.Name = Role(role), name
	known := (is.Role == Orchestrator || is.Role == Memory) && !more ||
		(is.Role == Worker || is.Role == Admin) && name != "" && !strings.Contains(name, "/")
	if !known {
		return ID{}, fmt.Errorf("%s is nobody in a mesh; a path is /orchestrator, /memory, /worker/<agent> or /admin/<name>", id)
	}
	return is, nil
}

// check reports what keeps an ID from being one.
func (id ID) check() error {
	again, err := Parse(id.String())
	if err == nil && again != id {
		err = fmt.Errorf("%s is no id of a %s", id, id.Role)
	}
	return err
}
