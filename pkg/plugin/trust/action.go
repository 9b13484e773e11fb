package trust

import (
	"context"

	"github.com/troupe-dev/troupe/pkg/failure"
)

// Promote moves a client up the ladder to the given state, Contact or Whitelisted, for an admin. by is the Client of a
// Decision about the admin's own request.
//
// All actions return the new state of the client. They can be repeated: an action that changes nothing is no error. If by
// is no admin, the error is user_permission. If the client has an invalid name, or cannot be moved like this, it is
// user_invalid_input and says what to do instead. An error of the store is returned unchanged.
func (g *Gate) Promote(ctx context.Context, by, client string, to State) (State, error) {
	return g.moveClient(ctx, "trust.Promote", by, client, func(from State) (State, string) {
		switch {
		case to.rank() < Contact.rank():
			return "", "promote to contact or whitelisted; admins are named in the agent's configuration"
		case from == Blocked:
			return "", "the client is blocked; unblock it first"
		case from == Admin:
			return "", "the client is an admin, which is more"
		case from.rank() > to.rank():
			return "", "the client is " + string(from) + ", which is more; use demote"
		}
		return to, ""
	})
}

// Demote moves a client down the ladder to the given state, Contact or Stranger. by and the errors are as for
// Promote.
func (g *Gate) Demote(ctx context.Context, by, client string, to State) (State, error) {
	return g.moveClient(ctx, "trust.Demote", by, client, func(from State) (State, string) {
		switch {
		case to != Contact && to != Stranger:
			return "", "demote to contact or stranger"
		case from == Blocked:
			return "", "the client is blocked, which is less; use unblock to make it a stranger"
		case from == Admin:
			return "", adminProblem
		case from.rank() < to.rank():
			return "", "the client is a " + string(from) + ", which is less; use promote"
		}
		return to, ""
	})
}

// BlockClient makes every level reject a client. An admin cannot be blocked.
func (g *Gate) BlockClient(ctx context.Context, by, client string) (State, error) {
	return g.moveClient(ctx, "trust.Block", by, client, func(from State) (State, string) {
		if from == Admin {
			return "", adminProblem
		}
		return Blocked, ""
	})
}

// Unblock makes a blocked client a stranger, whatever state it had before it was blocked. It keeps any other
// state.
func (g *Gate) Unblock(ctx context.Context, by, client string) (State, error) {
	return g.moveClient(ctx, "trust.Unblock", by, client, func(from State) (State, string) {
		if from == Blocked {
			return Stranger, ""
		}
		return from, ""
	})
}

const adminProblem = "the client is an admin; take it out of the agent's configuration or file first"

func (g *Gate) moveClient(ctx context.Context, op, by, client string, step func(from State) (to State, wrong string)) (State, error) {
	actor, err := g.State(ctx, by)
	if err != nil {
		return "", err
	}
	if actor != Admin {
		return "", failure.New(failure.UserPermission, op, "only an admin of the agent may do this").With("by", by)
	}
	if !validClient(client) {
		return "", failure.New(failure.UserInvalidInput, op, clientForm)
	}
	return g.config.Store.Change(ctx, client, func(stored State) (State, error) {
		to, wrong := step(g.knownState(client, stored))
		if wrong != "" {
			return "", failure.New(failure.UserInvalidInput, op, wrong).With("client", client)
		}
		return to, nil
	})
}
