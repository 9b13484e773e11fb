package db

import (
	"context"
	"strconv"

	"github.com/troupe-dev/troupe/pkg/session"
	"github.com/troupe-dev/troupe/services/memory/internal/caller"
)

// TenantsKey is a sorted set of the tenants that ever had a session. Tenants are never removed from it.
const TenantsKey = "m:tenants"

// Key returns a key of a session.
func Key(ref session.Ref, name string) string {
	return "m:{" + ref.Tenant + "/" + ref.Session + "}:" + name
}

// UserKey returns a key of the data that the sessions of a user share. No session has such a hash tag:
// the tag of a session has one slash.
func UserKey(tenant, user, name string) string { return "m:{" + tenant + "/u/" + user + "}:" + name }

// AppKey returns a key of the data that all sessions of a tenant share.
func AppKey(tenant, name string) string { return "m:{" + tenant + "}:" + name }

// IndexKey returns the index of the sessions of a user (an empty user means all of the tenant).
func IndexKey(tenant, user string) string {
	if user == "" {
		return "m:idx:{" + tenant + "}"
	}
	return UserKey(tenant, user, "sessions")
}

// TurnKeys returns the KEYS of a script that acts for a turn: meta, log, the turn, and then its own.
func TurnKeys(ref session.Ref, turnID string, more ...string) []string {
	keys := []string{Key(ref, "meta"), Key(ref, "log"), Key(ref, "turn:"+turnID)}
	for _, name := range more {
		keys = append(keys, Key(ref, name))
	}
	return keys
}

// JournalName returns the name of the key that holds the journal of a step.
func JournalName(turnID string, step int) string {
	return WaitingJournalName(turnID + ":" + strconv.Itoa(step))
}

// WaitingJournalName is JournalName for a step that is written as <turn>:<step>.
func WaitingJournalName(waiting string) string { return "jrnl:" + waiting }

// RoundsName returns the name of the key that lists the tool rounds of an agent.
func RoundsName(agent string) string { return "rounds:" + agent }

// FenceArg returns the epoch of the caller in the form that turn.lua takes it: <epoch>, or <epoch>/<step>
// when a worker calls in its step.
func FenceArg(ctx context.Context, epoch int64) string {
	text := strconv.FormatInt(epoch, 10)
	if step := caller.WorkerOf(ctx).Step; step > 0 {
		text += "/" + strconv.Itoa(step)
	}
	return text
}

// Location names the keys of one owner: a session, a user or a tenant.
type Location func(name string) string

// OfSession returns the location of the data of a session.
func OfSession(ref session.Ref) Location {
	return func(name string) string { return Key(ref, name) }
}

// OfUser returns the location of the data that the sessions of a user share.
func OfUser(tenant, user string) Location {
	return func(name string) string { return UserKey(tenant, user, name) }
}
