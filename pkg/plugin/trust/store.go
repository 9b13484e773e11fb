package trust

import (
	"cmp"
	"context"
	"sync"

	"github.com/troupe-dev/troupe/pkg/failure"
)

// Store keeps the states of clients. Implementations are safe for concurrent use. They must return an error rather than
// guess, so that a blocked client does not become a stranger when the store cannot be read.
type Store interface {
	// State returns the state of a client, or Stranger if the store does not know it.
	State(ctx context.Context, client string) (State, error)
	// Change atomically replaces the state of a client by the state that to returns for the current one. If to
	// fails, Change changes nothing and returns its error.
	Change(ctx context.Context, client string, to func(from State) (State, error)) (State, error)
}

// RAMStore is a Store in RAM. After a restart it is empty. The zero RAMStore is ready for use.
type RAMStore struct {
	mu      sync.Mutex
	clients states
}

var _ Store = (*RAMStore)(nil)

// State implements Store. It never fails.
func (s *RAMStore) State(_ context.Context, client string) (State, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.clients.stateOf(client), nil
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

// states holds the states of all clients except strangers.
type states map[string]State

func (s states) stateOf(client string) State { return cmp.Or(s[client], Stranger) }

// change replaces the state of a client. It returns the new state, and whether it differs from the old one.
func (s states) change(client string, to func(State) (State, error)) (State, bool, error) {
	from := s.stateOf(client)
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
