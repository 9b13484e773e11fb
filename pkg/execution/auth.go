package execution

import (
	"context"
	"fmt"
	"maps"
	"sync"

	"github.com/troupe-dev/troupe/pkg/secret"
)

// Auth says on whose behalf a turn acts and with which credentials. It lives as long as the turn (LP-18). Keep it
// in RAM and never write it to a store or a log.
type Auth struct {
	Actor       string                  // person or program, at most 256 bytes; empty when none is named
	Credentials map[string]secret.Value // by name, at most 16
}

// IsZero reports whether a has neither an actor nor credentials.
func (a Auth) IsZero() bool { return a.Actor == "" && len(a.Credentials) == 0 }

// Format implements fmt.Formatter. With every verb it prints a redacted text, so an Auth in an error or a panic reveals
// nothing.
func (Auth) Format(f fmt.State, _ rune) { _, _ = f.Write([]byte(secret.Redacted)) }

// MarshalText returns the redacted text, for logs, JSON and YAML.
func (Auth) MarshalText() ([]byte, error) { return []byte(secret.Redacted), nil }

// Wipe overwrites the credentials in all copies of this Auth (guarantee S8). The process that received them calls
// it at the end of the step or turn.
func (a Auth) Wipe() {
	for _, v := range a.Credentials {
		v.Wipe()
	}
}

// Login names a credential that a tool needs, and says how a person obtains it.
type Login struct {
	Name   string // of the credential, as Credential finds it
	Prompt string // one sentence for the person; at most 1 KiB
	URL    string // where the person gets it (may be empty)
}

// CredentialBroker lets tools ask a person for a credential (LP-37). The person seals it to a public key of the
// broker, so that only the broker can read it.
type CredentialBroker interface {
	// Ask creates a key for the named credential. Modes: resource_quota when too many keys exist.
	Ask(name string) (PendingAuth, error)
	// Open decrypts a credential that was sealed to the key with the id, and returns the name that was asked for.
	// Modes: not_found when the key no longer exists, user_invalid_input when the credential was sealed to another
	// key.
	Open(id string, sealed []byte) (name string, credential secret.Value, err error)
}

type (
	authKey   struct{}
	holderKey struct{}
)

// turnAuth is the Auth of a running turn, with the credentials that were lent to single tools or withdrawn from
// them.
type turnAuth struct {
	mu    sync.Mutex
	auth  Auth
	lent  map[string]map[string]secret.Value // by holder and name (the zero Value was withdrawn)
	ended bool
}

// WithAuth returns a context in which AuthFrom finds auth, until ctx ends. It is for code that runs steps.
func WithAuth(ctx context.Context, auth Auth) context.Context {
	h := &turnAuth{auth: auth}
	context.AfterFunc(ctx, func() { // also for code that keeps a context
		h.mu.Lock()
		defer h.mu.Unlock()
		h.auth, h.lent, h.ended = Auth{}, nil, true
	})
	return context.WithValue(ctx, authKey{}, h)
}

// AuthFrom returns the Auth of the turn. Tools and models of the running step pass the context that they were
// called with. A tool also finds the credentials that were lent to it alone. It returns false if there is no Auth,
// or if the step has ended.
func AuthFrom(ctx context.Context) (Auth, bool) {
	h, ok := ctx.Value(authKey{}).(*turnAuth)
	if !ok {
		return Auth{}, false
	}
	holder, _ := ctx.Value(holderKey{}).(string)
	h.mu.Lock()
	defer h.mu.Unlock()
	auth := h.auth
	if own := h.lent[holder]; len(own) > 0 {
		auth.Credentials = maps.Clone(auth.Credentials)
		if auth.Credentials == nil {
			auth.Credentials = map[string]secret.Value{}
		}
		for name, v := range own {
			auth.Credentials[name] = v
			if v == (secret.Value{}) {
				delete(auth.Credentials, name)
			}
		}
	}
	return auth, !auth.IsZero()
}

// Credential returns a credential of the turn by name, as AuthFrom finds it. It returns false if there is none.
func Credential(ctx context.Context, name string) (secret.Value, bool) {
	auth, _ := AuthFrom(ctx)
	v, ok := auth.Credentials[name]
	return v, ok
}

// WithHolder returns a context for a tool, in which AuthFrom also finds the credentials lent to this holder
// (LP-37). It is for code that calls tools.
func WithHolder(ctx context.Context, holder string) context.Context {
	return context.WithValue(ctx, holderKey{}, holder)
}

// LendCredential gives a credential to the holder of ctx alone, until the turn ends. It does nothing if ctx has no
// Auth.
func LendCredential(ctx context.Context, name string, v secret.Value) {
	h, ok := ctx.Value(authKey{}).(*turnAuth)
	holder, named := ctx.Value(holderKey{}).(string)
	if !ok || !named {
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.ended {
		return
	}
	if h.lent == nil {
		h.lent = map[string]map[string]secret.Value{}
	}
	if h.lent[holder] == nil {
		h.lent[holder] = map[string]secret.Value{}
	}
	h.lent[holder][name] = v
}

// WithdrawCredential removes a credential from the holder of ctx for the rest of the turn, even one that the turn
// came with.
func WithdrawCredential(ctx context.Context, name string) { LendCredential(ctx, name, secret.Value{}) }
