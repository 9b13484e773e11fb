package execution

import (
	"context"
	"fmt"
	"maps"
	"sync"

	"github.com/troupe-dev/troupe/pkg/secret"
)

// Auth is in whose name a turn acts, and with which credentials. It comes with the turn and
// goes with it (LP-18): whoever holds one keeps it in RAM, and writes it nowhere.
type Auth struct {
	Actor       string                  // person or program, at most 256 bytes; empty: nobody is named
	Credentials map[string]secret.Value // by name, at most 16
}

// IsZero reports whether there is nothing in it.
func (a Auth) IsZero() bool { return a.Actor == "" && len(a.Credentials) == 0 }

// Format implements fmt.Formatter: whatever the verb, it tells neither whom nor what, as where
// somebody panics with an Auth or puts one into an error.
func (Auth) Format(f fmt.State, _ rune) { _, _ = f.Write([]byte(secret.Redacted)) }

// MarshalText is the same for logs, JSON and YAML.
func (Auth) MarshalText() ([]byte, error) { return []byte(secret.Redacted), nil }

// Wipe overwrites the credentials, for all who have this Auth (guarantee S8). It is for who received
// them, once the step or the turn is over.
func (a Auth) Wipe() {
	for _, v := range a.Credentials {
		v.Wipe()
	}
}

// Login is a credential that a tool lacks, and how a person comes by it.
type Login struct {
	Name   string // of the credential, as Credential finds it
	Prompt string // one sentence for the person; at most 1 KiB
	URL    string // where it comes from; empty: Prompt says all there is
}

// CredentialBroker lets tools ask a person for a credential (LP-37). The person seals it to a key that the broker
// made, so that nothing on the way can read it.
type CredentialBroker interface {
	// Ask makes a key for the credential of a name. Modes: resource_quota when too many keys live.
	Ask(name string) (PendingAuth, error)
	// Open opens a credential that was sealed to the key of an id, and returns the name that it was asked for. Modes:
	// not_found when the key is gone, user_invalid_input when the credential was sealed to another key.
	Open(id string, sealed []byte) (name string, credential secret.Value, err error)
}

type (
	authKey   struct{}
	holderKey struct{}
)

// held is the auth of a turn while that runs. What single tools were given beside it, or are not
// to have any more, is by the holder.
type held struct {
	mu   sync.Mutex
	auth Auth
	lent map[string]map[string]secret.Value // by holder and name; the zero Value: it was taken away
	over bool
}

// WithAuth returns a context under which AuthFrom finds auth, until ctx ends. It is for
// whoever runs steps.
func WithAuth(ctx context.Context, auth Auth) context.Context {
	h := &held{auth: auth}
	context.AfterFunc(ctx, func() { // also for those who keep a context
		h.mu.Lock()
		defer h.mu.Unlock()
		h.auth, h.lent, h.over = Auth{}, nil, true
	})
	return context.WithValue(ctx, authKey{}, h)
}

// AuthFrom returns the auth of the turn. It is for the tools and models of the running step,
// with the context that they were called with: once the step has ended it is forgotten. A tool
// also finds what it alone was given. False means that there is none.
func AuthFrom(ctx context.Context) (Auth, bool) {
	h, ok := ctx.Value(authKey{}).(*held)
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

// Credential returns one of the turn's credentials, under the conditions of AuthFrom. False
// means that there is none of that name.
func Credential(ctx context.Context, name string) (secret.Value, bool) {
	auth, _ := AuthFrom(ctx)
	v, ok := auth.Credentials[name]
	return v, ok
}

// WithHolder returns a context for a tool, in which AuthFrom also finds the credentials that were lent to the holder
// (LP-37). It is for code that calls tools.
func WithHolder(ctx context.Context, holder string) context.Context {
	return context.WithValue(ctx, holderKey{}, holder)
}

// LendCredential gives a credential to the holder of ctx alone, for as long as the auth of the turn lasts.
// Without such an auth nothing is given.
func LendCredential(ctx context.Context, name string, v secret.Value) {
	h, ok := ctx.Value(authKey{}).(*held)
	holder, named := ctx.Value(holderKey{}).(string)
	if !ok || !named {
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.over {
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

// WithdrawCredential takes a credential away from the holder of ctx for the rest of the turn, even one that came with
// the turn.
func WithdrawCredential(ctx context.Context, name string) { LendCredential(ctx, name, secret.Value{}) }
