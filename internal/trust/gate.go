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

// MinInvite is the least length of an invite code, in bytes. Guesses are not counted, so a
// good code is much longer and random.
const MinInvite = 16

// Config describes a gate.
type Config struct {
	Agent   string           // name of the agent behind the gate, as clients sign it
	Level   Level            // empty: Careful
	Store   Store            // nil: a RAMStore
	Judge   Judge            // of strangers, at level careful; nil: they are refused
	Policy  string           // for the judge, in words; empty: that of the level
	Admins  []string         // clients who are admins, unless the store has them blocked
	Allow   []string         // strangers whom level careful lets in
	Invites []string         // codes that let a stranger in, at level careful, and make a contact of one who has a name
	Now     func() time.Time // nil: time.Now
}

// Gate decides who may use one agent. It is safe for concurrent use.
//
// It remembers which signatures were used, in RAM: with several instances of an agent, or
// after a restart, a signature may be used once more, while its time allows.
type Gate struct {
	config  Config
	invites [][sha256.Size]byte
	replays *replays
}

// New returns the gate that c describes. Everything that is wrong with c is in the error, of
// mode agent_validation.
func New(c Config) (*Gate, error) {
	var wrong []string
	level, err := ParseLevel(string(c.Level))
	if err != nil {
		wrong = append(wrong, "Level: "+failure.Plain(err))
	}
	if c.Agent == "" {
		wrong = append(wrong, "Agent is missing")
	}
	for _, client := range slices.Concat(c.Admins, c.Allow) {
		if !validClient(client) {
			wrong = append(wrong, fmt.Sprintf("client %q: %s", client, clientForm))
		}
	}
	g := &Gate{replays: newReplays()}
	for i, code := range c.Invites {
		if len(code) < MinInvite {
			wrong = append(wrong, fmt.Sprintf("Invites[%d] has %d bytes: use %d or more", i, len(code), MinInvite))
		}
		g.invites = append(g.invites, sha256.Sum256([]byte(code)))
	}
	if len(wrong) > 0 {
		return nil, failure.Newf(failure.AgentValidation, "trust.New",
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

// State is the state of a client: blocked before all else, admin if the Config says so, and
// else what the store says. The client without a name is a stranger.
func (g *Gate) State(ctx context.Context, client string) (State, error) {
	if client == "" {
		return Stranger, nil
	}
	state, err := g.config.Store.State(ctx, client)
	switch {
	case err != nil:
		return "", err
	case !state.valid(): // it may be one that was meant to block
		return "", failure.Newf(failure.AgentContract, "trust.State", "the agent's store gave the unknown state %q", state)
	}
	return g.effective(client, state), nil
}

func (g *Gate) effective(client string, stored State) State {
	if stored != Blocked && slices.Contains(g.config.Admins, client) {
		return Admin
	}
	return stored
}

// invited reports whether code is one of the invites, in a time that does not tell which.
func (g *Gate) invited(code string) bool {
	sum, found := sha256.Sum256([]byte(code)), 0
	for _, invite := range g.invites {
		found |= subtle.ConstantTimeCompare(sum[:], invite[:])
	}
	return found == 1
}
