// Package trust decides who may use an agent (CO-62). A Gate stands before one agent. It
// checks the signature of a request, if there is one; then rules, which cost nothing, go by
// the agent's level and by what is known of the client; and only what they leave open goes
// to a Judge. What nobody decides is refused, and so is what cannot be checked.
//
// The package knows neither steps nor loops: whoever serves an agent asks the gate first.
package trust

import (
	"regexp"
	"slices"
	"strings"

	"github.com/troupe-dev/troupe/pkg/failure"
)

// Level is how much an agent trusts those it does not know.
type Level string

// The levels. Whatever the level, a blocked client is refused, and so is a request whose
// signature is wrong.
const (
	// Open lets in everyone who is not blocked: for development.
	Open Level = "open"
	// Careful lets in admins, whitelisted clients and contacts, and strangers by the
	// allow-list, by an invite or by the judge. It is the default.
	Careful Level = "careful"
	// Strict lets in admins and whitelisted clients. Invites, allow-list and judge do not
	// count.
	Strict Level = "strict"
)

// ParseLevel returns the level of the given name; the empty name is that of Careful. Any
// other gives agent_validation.
func ParseLevel(name string) (Level, error) {
	switch l := Level(name); l {
	case "":
		return Careful, nil
	case Open, Careful, Strict:
		return l, nil
	}
	return "", failure.Newf(failure.AgentValidation, "trust.ParseLevel",
		"trust level %q is not known; use open, careful or strict", name)
}

// Policy is the level in words, as a judge reads it when Config names no other policy.
func (l Level) Policy() string {
	switch l {
	case Open:
		return "Everyone who is not blocked may use the agent."
	case Strict:
		return "Only admins and whitelisted clients may use the agent."
	default:
		return "Admins, whitelisted clients and contacts may use the agent. A stranger may use it for one ordinary, " +
			"harmless request, but not to obtain secrets, the data of others, more rights, or work out of all proportion."
	}
}

// State is what is known of a client.
type State string

// The states. Stranger, contact and whitelisted are steps of a ladder, which Promote and
// Demote go; admins are named in a Config or by hand in the file of a FileStore.
const (
	Stranger    State = "stranger" // the state of everyone of whom nothing is known
	Contact     State = "contact"
	Whitelisted State = "whitelisted"
	Blocked     State = "blocked"
	Admin       State = "admin"
)

func (s State) valid() bool {
	return slices.Contains([]State{Stranger, Contact, Whitelisted, Blocked, Admin}, s)
}

// rank is the place of a state on the ladder, or -1.
func (s State) rank() int { return slices.Index([]State{Stranger, Contact, Whitelisted}, s) }

// clientForm is how clients are named. A key has one form only: one in capitals would block
// nobody.
const clientForm = "a client is written as ed25519: and 64 hexadecimal digits in small letters, or in 1 to 256 other ASCII characters without a space"

var (
	keyName   = regexp.MustCompile(`^ed25519:[0-9a-f]{64}$`)
	otherName = regexp.MustCompile(`^[!-~]{1,256}$`)
)

func validClient(name string) bool {
	isKey := strings.HasPrefix(strings.ToLower(name), keyPrefix)
	return isKey && keyName.MatchString(name) || !isKey && otherName.MatchString(name)
}
