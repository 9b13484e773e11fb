package trust

import (
	"cmp"
	"context"
	"sync"

	"github.com/troupe-dev/troupe/pkg/failure"
)

// Store keeps the states of clients. Implementations are safe for concurrent use. They fail
// rather than guess: a store that cannot be read must not make a stranger of a blocked
// client.
type Store interface {
	// State is the state of a client, Stranger for one that the store does not know.
	State(ctx context.Context, client string) (State, error)
	// Change gives a client the state that to makes of the present one, in one step: no
	// other change comes between. When to fails nothing changes and Change returns its error.
	Change(ctx context.Context, client string, to func(from State) (State, error)) (State, error)
}

// RAMStore is a Store that a restart empties. The zero RAMStore is ready for use.
type RAMStore struct {
	mu      sync.Mutex
	clients states
}

var _ Store = (*RAMStore)(nil)

// State implements Store; it does not fail.
func (s *RAMStore) State(_ context.Context, client string) (State, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.clients.of(client), nil
}

// Change implements Store.
func (s *RAMStore) Change(_ context.Context, client string, to func(State) (State, error)) (State, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.clients == nil {
		s.clients = states{}
	}
	state, _, err := s.clients.change(client, to)
	return state, err
}

// states are those of the clients that are not strangers.
type states map[string]State

func (s states) of(client string) State { return cmp.Or(s[client], Stranger) }

// change also reports whether there was a change.
func (s states) change(client string, to func(State) (State, error)) (State, bool, error) {
	from := s.of(client)
	state, err := to(from)
	switch {
	case err != nil:
		return "", false, err
	case !validClient(client) || !state.valid():
		return "", false, failure.Newf(failure.UserInvalidInput, "trust.Change",
			"client %q cannot have the state %q; %s", client, state, clientForm)
	case state == Stranger:
		delete(s, client)
	default:
		s[client] = state
	}
	return state, state != from, nil
}
