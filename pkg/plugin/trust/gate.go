package trust

import (
	"cmp"
	"context"
	"crypto/sha256"
	"crypto/subtle"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/troupe-dev/troupe/pkg/failure"
)

// Limits of a gate.
const (
	MinInvite = 16              // bytes of an invite code; a gate does not count guesses, so use longer random codes
	Window    = 5 * time.Minute // between the time of a signed request and the agent's clock, in either direction
)

// GateConfig holds the settings of a gate.
type GateConfig struct {
	Agent   string           // name of the agent behind the gate, as clients sign it
	Level   Level            // (empty means Careful)
	Store   Store            // (nil means a RAMStore)
	Judge   Judge            // decides about strangers at level careful (nil rejects them)
	Policy  string           // for the judge, in words (empty means the policy of the level)
	Admins  []string         // clients that are admins, unless they are blocked in the store
	Allow   []string         // strangers that level careful admits
	Invites []string         // codes that admit a stranger at level careful, and make a client with a name a contact
	Now     func() time.Time // (nil means time.Now)
}

// Gate decides who may use one agent. It is safe for concurrent use.
//
// It remembers used signatures in RAM. A signature can be used again at another instance of the agent or after a restart,
// within Window.
type Gate struct {
	config         GateConfig
	invites        [][sha256.Size]byte
	usedSignatures *usedSignatures
}

// NewGate returns the gate that c describes. The error lists all problems of c. Modes: agent_validation.
func NewGate(c GateConfig) (*Gate, error) {
	var wrong []string
	level, err := ParseLevel(string(c.Level))
	if err != nil {
		wrong = append(wrong, "Level: "+failure.PlainMessage(err))
	}
	if c.Agent == "" {
		wrong = append(wrong, "Agent is missing")
	}
	for _, client := range slices.Concat(c.Admins, c.Allow) {
		if !validClient(client) {
			wrong = append(wrong, fmt.Sprintf("client %q: %s", client, clientForm))
		}
	}
	g := &Gate{usedSignatures: newUsedSignatures()}
	for i, code := range c.Invites {
		if len(code) < MinInvite {
			wrong = append(wrong, fmt.Sprintf("Invites[%d] has %d bytes: use %d or more", i, len(code), MinInvite))
		}
		g.invites = append(g.invites, sha256.Sum256([]byte(code)))
	}
	if len(wrong) > 0 {
		return nil, failure.Newf(failure.AgentValidation, "trust.NewGate",
			"the trust of agent %q is not valid: %s", c.Agent, strings.Join(wrong, "; "))
	}
	c.Level, c.Policy = level, cmp.Or(c.Policy, level.Policy())
	c.Admins, c.Allow = slices.Clone(c.Admins), slices.Clone(c.Allow)
	if c.Store == nil {
		c.Store = &RAMStore{}
	}
	if c.Now == nil {
		c.Now = time.Now
	}
	g.config = c
	return g, nil
}

// State returns the state of a client. It is Blocked if the store says so, otherwise Admin if the GateConfig lists
// the client, and otherwise the state in the store. A client without a name is a Stranger.
func (g *Gate) State(ctx context.Context, client string) (State, error) {
	if client == "" {
		return Stranger, nil
	}
	state, err := g.config.Store.State(ctx, client)
	switch {
	case err != nil:
		return "", err
	case !state.valid(): // an unknown state may have been meant to block the client
		return "", failure.Newf(failure.AgentContract, "trust.State", "the agent's store returned the unknown state %q", state)
	}
	return g.knownState(client, state), nil
}

func (g *Gate) knownState(client string, stored State) State {
	if stored != Blocked && slices.Contains(g.config.Admins, client) {
		return Admin
	}
	return stored
}

// isInvited reports whether code is one of the invites. Its running time does not reveal which one.
func (g *Gate) isInvited(code string) bool {
	sum, found := sha256.Sum256([]byte(code)), 0
	for _, invite := range g.invites {
		found |= subtle.ConstantTimeCompare(sum[:], invite[:])
	}
	return found == 1
}
