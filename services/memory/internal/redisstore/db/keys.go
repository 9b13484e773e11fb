package db

import (
	"context"
	"strconv"
	"strings"

	"github.com/troupe-dev/troupe/pkg/session"
	"github.com/troupe-dev/troupe/services/memory/internal/caller"
)

// TenantsKey is the key of the sorted set of tenants that ever had a session. Tenants are never removed from it.
const TenantsKey = "m:tenants"

// Key returns the full key with the given name in the data of a session.
func Key(ref session.Ref, name string) string {
	return "m:{" + ref.Tenant + "/" + ref.Session + "}:" + name
}

// UserKey returns the full key with the given name in the data that a user's sessions share. Its hash tag cannot
// equal the tag of a session, which has exactly one slash.
func UserKey(tenant, user, name string) string { return "m:{" + tenant + "/u/" + user + "}:" + name }

// AppKey returns the full key with the given name in the data that all sessions of a tenant share.
func AppKey(tenant, name string) string { return "m:{" + tenant + "}:" + name }

// IndexKey returns the key of the session index of a user (an empty user means all users of the tenant).
func IndexKey(tenant, user string) string {
	if user == "" {
		return "m:idx:{" + tenant + "}"
	}
	return UserKey(tenant, user, "sessions")
}

// TurnKeys returns the KEYS of a script that acts for a turn: the meta hash, the log, the turn, and then the keys
// with the given names.
func TurnKeys(ref session.Ref, turnID string, more ...string) []string {
	keys := []string{Key(ref, "meta"), Key(ref, "log"), Key(ref, "turn:"+turnID)}
	for _, name := range more {
		keys = append(keys, Key(ref, name))
	}
	return keys
}

// JournalName returns the name of the key that holds the journal of a step.
func JournalName(turnID string, step int) string {
	return "jrnl:" + turnID + ":" + strconv.Itoa(step)
}

// WaitingJournalNames returns the names of the keys that hold the journals of steps whose calls wait. The steps are given
// as in the meta hash of a session: <turn>:<step>,<step>.
func WaitingJournalNames(waiting string) (names []string) {
	turnID, steps, waits := strings.Cut(waiting, ":")
	for step := range strings.SplitSeq(steps, ",") {
		if waits {
			names = append(names, "jrnl:"+turnID+":"+step)
		}
	}
	return names
}

// FormatSteps returns step numbers in the form in which scripts get them: separated by commas.
func FormatSteps(steps []int) string {
	texts := make([]string, len(steps))
	for i, step := range steps {
		texts[i] = strconv.Itoa(step)
	}
	return strings.Join(texts, ",")
}

// RoundsName returns the name of the key that lists the tool rounds of an agent.
func RoundsName(agent string) string { return "rounds:" + agent }

// FenceArg returns the caller's epoch in the form that turn.lua expects: <epoch>, or <epoch>/<step> if a worker
// makes the call.
func FenceArg(ctx context.Context, epoch int64) string {
	text := strconv.FormatInt(epoch, 10)
	if step := caller.WorkerFromContext(ctx).Step; step > 0 {
		text += "/" + strconv.Itoa(step)
	}
	return text
}

// Location returns the full key for a name in the data of one owner: a session, a user or a tenant.
type Location func(name string) string

// SessionLocation returns the location of the data of a session.
func SessionLocation(ref session.Ref) Location {
	return func(name string) string { return Key(ref, name) }
}

// UserLocation returns the location of the data that the sessions of a user share.
func UserLocation(tenant, user string) Location {
	return func(name string) string { return UserKey(tenant, user, name) }
}
