// Package trust is a plugin that decides which clients may use an agent (CO-61, CO-62). Its Gate stands in front of one
// agent. The gate verifies the signature of a request, if it has one. Then rules decide by the agent's level and by what is
// known of the client. A Judge decides only what the rules leave open. A request that neither decides is refused, and so
// is a request that cannot be checked.
//
// New makes the plugin. A program that serves an agent by other means asks a Gate of its own before each request.
package trust

import (
	"regexp"
	"slices"
	"strings"

	"github.com/troupe-dev/troupe/pkg/failure"
)

// Level says how far an agent trusts clients that it does not know.
type Level string

// The levels. Every level rejects blocked clients and requests with a wrong signature.
const (
	// Open admits every client that is not blocked. It is for development.
	Open Level = "open"
	// Careful admits admins, whitelisted clients and contacts. It admits a stranger that is on the allow-list, has
	// an invite, or is admitted by the judge. It is the default.
	Careful Level = "careful"
	// Strict admits only admins and whitelisted clients. It ignores invites, the allow-list and the judge.
	Strict Level = "strict"
)

// ParseLevel returns the level with the given name (empty means Careful). Modes: agent_validation for an unknown
// name.
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

// Policy describes the level in words, for a judge whose GateConfig has no policy of its own.
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

// State is the trust status of a client.
type State string

// The states. Stranger, Contact and Whitelisted are the steps of a ladder on which Promote and Demote move
// clients. Admins are listed in a GateConfig, or entered by hand in the file of a FileStore.
const (
	Stranger    State = "stranger" // the state of every unknown client
	Contact     State = "contact"
	Whitelisted State = "whitelisted"
	Blocked     State = "blocked"
	Admin       State = "admin"
)

func (s State) valid() bool {
	return slices.Contains([]State{Stranger, Contact, Whitelisted, Blocked, Admin}, s)
}

// rank returns the position of a state on the ladder, or -1.
func (s State) rank() int { return slices.Index([]State{Stranger, Contact, Whitelisted}, s) }

// clientForm describes the form of client names for error messages. A key has exactly one form, because blocking
// the key in another form would have no effect.
const clientForm = "a client is written as ed25519: and 64 hexadecimal digits in small letters, or in 1 to 256 other ASCII characters without a space"

var (
	keyNamePattern   = regexp.MustCompile(`^ed25519:[0-9a-f]{64}$`)
	otherNamePattern = regexp.MustCompile(`^[!-~]{1,256}$`)
)

func validClient(name string) bool {
	isKey := strings.HasPrefix(strings.ToLower(name), keyPrefix)
	return isKey && keyNamePattern.MatchString(name) || !isKey && otherNamePattern.MatchString(name)
}
