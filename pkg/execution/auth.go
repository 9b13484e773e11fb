package execution

import (
	"context"
	"fmt"
	"maps"
	"sync"

	"github.com/troupe-dev/troupe/pkg/secret"
)

// Auth says on whose behalf a turn acts and which credentials it has. It exists only as long as the turn (LP-18).
// Keep it in RAM, and never write it to a store or a log.
type Auth struct {
	Actor       string                  // person or program, at most 256 bytes; empty when none is named
	Credentials map[string]secret.Value // by name, at most 16
}

// IsZero reports whether a has neither an actor nor credentials.
func (a Auth) IsZero() bool { return a.Actor == "" && len(a.Credentials) == 0 }

// Format implements fmt.Formatter. It prints a redacted text for every verb, so an Auth in an error or a panic
// reveals nothing.
func (Auth) Format(f fmt.State, _ rune) { _, _ = f.Write([]byte(secret.Redacted)) }

// MarshalText returns the redacted text, for logs, JSON and YAML.
func (Auth) MarshalText() ([]byte, error) { return []byte(secret.Redacted), nil }

// Wipe overwrites the credentials in all copies of this Auth (guarantee S8). The process that received the
// credentials calls it at the end of the step or turn.
func (a Auth) Wipe() {
	for _, v := range a.Credentials {
		v.Wipe()
	}
}

// Login names a credential that a tool needs, and says how a person obtains it.
type Login struct {
	Name   string // name of the credential, as passed to Credential
	Prompt string // one sentence for the person; at most 1 KiB
	URL    string // where the person gets the credential (may be empty)
}

// CredentialBroker lets tools ask a person for a credential (LP-37). The person encrypts the credential with a
// public key of the broker, so that only the broker can read it.
type CredentialBroker interface {
	// Ask creates a key for the named credential. Modes: resource_quota when too many keys exist.
	Ask(name string) (PendingAuth, error)
	// Open decrypts a credential that was sealed to the key with the given id. It returns the name for which Ask
	// created the key. Modes: not_found when the key no longer exists, user_invalid_input when the credential was
	// sealed to another key.
	Open(id string, sealed []byte) (name string, credential secret.Value, err error)
}

type (
	authKey   struct{}
	holderKey struct{}
)

// turnAuth holds the Auth of a running turn, and the credentials that were lent to single tools or withdrawn from
// them.
type turnAuth struct {
	mu    sync.Mutex
	auth  Auth
	lent  map[string]map[string]secret.Value // by holder and name (the zero Value means withdrawn)
	ended bool
}

// WithAuth returns a context in which AuthFrom finds auth, until ctx ends. It is for code that runs steps.
func WithAuth(ctx context.Context, auth Auth) context.Context {
	h := &turnAuth{auth: auth}
	context.AfterFunc(ctx, func() { // so that code that keeps the context finds nothing
		h.mu.Lock()
		defer h.mu.Unlock()
		h.auth, h.lent, h.ended = Auth{}, nil, true
	})
	return context.WithValue(ctx, authKey{}, h)
}

// AuthFrom returns the Auth of the turn. Tools and models must pass the context that they were called with. A tool
// also gets the credentials that were lent to it alone. AuthFrom returns false if there is no Auth, or if the step
// has ended.
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

// WithHolder returns a context for the tool that holder names. In it AuthFrom also returns the credentials that
// were lent to this holder (LP-37). It is for code that calls tools.
func WithHolder(ctx context.Context, holder string) context.Context {
	return context.WithValue(ctx, holderKey{}, holder)
}

// LendCredential gives a credential to the holder in ctx, and to no other tool, until the turn ends. It does
// nothing if ctx has no Auth.
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

// WithdrawCredential hides a credential from the holder in ctx for the rest of the turn, even if the turn started
// with that credential.
func WithdrawCredential(ctx context.Context, name string) { LendCredential(ctx, name, secret.Value{}) }
