package trust

import (
	"context"

	"github.com/troupe-dev/troupe/pkg/failure"
)

// Promote moves a client up the ladder to the given state, contact or whitelisted, at the
// wish of an admin. by is the Client of a Decision about the admin's own request.
//
// This and the other actions return the state that the client has then. One that would
// change nothing is no error, so that it may be repeated. A by who is no admin gives
// user_permission; a client who cannot be moved so, or has no proper name,
// user_invalid_input with what to do instead; and a store that fails its own error.
func (g *Gate) Promote(ctx context.Context, by, client string, to State) (State, error) {
	return g.act(ctx, "trust.Promote", by, client, func(from State) (State, string) {
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

// Demote moves a client down the ladder to the given state, contact or stranger.
func (g *Gate) Demote(ctx context.Context, by, client string, to State) (State, error) {
	return g.act(ctx, "trust.Demote", by, client, func(from State) (State, string) {
		switch {
		case to != Contact && to != Stranger:
			return "", "demote to contact or stranger"
		case from == Blocked:
			return "", "the client is blocked, which is less; use unblock to make it a stranger"
		case from == Admin:
			return "", isAdmin
		case from.rank() < to.rank():
			return "", "the client is a " + string(from) + ", which is less; use promote"
		}
		return to, ""
	})
}

// Block shuts a client out, at every level. An admin cannot be blocked.
func (g *Gate) Block(ctx context.Context, by, client string) (State, error) {
	return g.act(ctx, "trust.Block", by, client, func(from State) (State, string) {
		if from == Admin {
			return "", isAdmin
		}
		return Blocked, ""
	})
}

// Unblock makes a stranger of a blocked client, whatever it was before. Others stay as they
// are.
func (g *Gate) Unblock(ctx context.Context, by, client string) (State, error) {
	return g.act(ctx, "trust.Unblock", by, client, func(from State) (State, string) {
		if from == Blocked {
			return Stranger, ""
		}
		return from, ""
	})
}

const isAdmin = "the client is an admin; take it out of the agent's configuration or file first"

func (g *Gate) act(ctx context.Context, op, by, client string, step func(from State) (to State, wrong string)) (State, error) {
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
		to, wrong := step(g.effective(client, stored))
		if wrong != "" {
			return "", failure.New(failure.UserInvalidInput, op, wrong).With("client", client)
		}
		return to, nil
	})
}
