package execution

import (
	"context"
	"sync/atomic"

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

type authKey struct{}

// WithAuth returns a context under which AuthFrom finds auth, until ctx ends. It is for
// whoever runs steps.
func WithAuth(ctx context.Context, auth Auth) context.Context {
	held := &atomic.Pointer[Auth]{}
	held.Store(&auth)
	context.AfterFunc(ctx, func() { held.Store(nil) }) // also for those who keep a context
	return context.WithValue(ctx, authKey{}, held)
}

// AuthFrom returns the auth of the turn. It is for the tools and models of the running step,
// with the context that they were called with: once the step has ended it is forgotten. False
// means that the turn brought none.
func AuthFrom(ctx context.Context) (Auth, bool) {
	held, ok := ctx.Value(authKey{}).(*atomic.Pointer[Auth])
	if !ok {
		return Auth{}, false
	}
	auth := held.Load()
	if auth == nil || auth.IsZero() {
		return Auth{}, false
	}
	return *auth, true
}

// Credential returns one of the turn's credentials, under the conditions of AuthFrom. False
// means that the turn brought none of that name.
func Credential(ctx context.Context, name string) (secret.Value, bool) {
	auth, _ := AuthFrom(ctx)
	v, ok := auth.Credentials[name]
	return v, ok
}
