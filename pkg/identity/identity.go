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

// Role is what a process does in the mesh.
type Role string

// The roles.
const (
	Orchestrator Role = "orchestrator"
	Memory       Role = "memory"
	Worker       Role = "worker"
)

// ID is who a process is (guarantees 4.1):
//
//	spiffe://<trust domain>/orchestrator
//	spiffe://<trust domain>/memory
//	spiffe://<trust domain>/worker/<agent>
//
// IDs can be compared with ==.
type ID struct {
	TrustDomain string
	Role        Role
	Agent       string // that a worker hosts; of others empty
}

// String is the SPIFFE id.
func (id ID) String() string { return id.url().String() }

func (id ID) url() *url.URL {
	return &url.URL{Scheme: "spiffe", Host: id.TrustDomain, Path: path.Join("/", string(id.Role), id.Agent)}
}

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
	role, agent, more := strings.Cut(strings.TrimPrefix(id.Path(), "/"), "/")
	is.Role, is.Agent = Role(role), agent
	known := (is.Role == Orchestrator || is.Role == Memory) && !more ||
		is.Role == Worker && agent != "" && !strings.Contains(agent, "/")
	if !known {
		return ID{}, fmt.Errorf("%s is nobody in a mesh; a path is /orchestrator, /memory or /worker/<agent>", id)
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
