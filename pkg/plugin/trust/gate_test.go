package trust_test

import (
	"context"
	"crypto/ed25519"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/troupe-dev/troupe/pkg/failure"
	"github.com/troupe-dev/troupe/pkg/plugin/trust"
)

const (
	librarian = "librarian" // the agent behind every gate of the tests
	question  = "May I borrow a book?"
	invite    = "an-invite-for-tests"
)

var (
	noon  = time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)
	alice = newKey(1)
	root  = newKey(2) // an admin
)

func newKey(n byte) ed25519.PrivateKey {
	seed := make([]byte, ed25519.SeedSize)
	seed[0] = n
	return ed25519.NewKeyFromSeed(seed)
}

func clientName(key ed25519.PrivateKey) string {
	return trust.ClientOf(key.Public().(ed25519.PublicKey))
}

// signedVisit returns a visit at noon that is signed with key.
func signedVisit(key ed25519.PrivateKey) trust.Visit { return signedVisitAt(key, noon) }

func signedVisitAt(key ed25519.PrivateKey, at time.Time) trust.Visit {
	s := trust.Sign(key, trust.Request{Agent: librarian, Text: question, Time: at})
	return trust.Visit{Text: question, Signature: s.String()}
}

// noonGate returns a gate whose clock shows noon and whose admin is root.
func noonGate(t *testing.T, c trust.GateConfig) *trust.Gate {
	t.Helper()
	c.Agent, c.Admins = librarian, append(c.Admins, clientName(root))
	if c.Now == nil {
		c.Now = func() time.Time { return noon }
	}
	g, err := trust.NewGate(c)
	require.NoError(t, err)
	return g
}

// storeWithState returns a store in which a client has the given state.
func storeWithState(t *testing.T, client string, state trust.State) *trust.RAMStore {
	t.Helper()
	s := &trust.RAMStore{}
	_, err := s.Change(t.Context(), client, func(trust.State) (trust.State, error) { return state, nil })
	require.NoError(t, err)
	return s
}

// fixedJudge returns the same verdict in every case, and records the cases.
type fixedJudge struct {
	verdict trust.Verdict
	err     error
	cases   []trust.Case
}

func (j *fixedJudge) Decide(_ context.Context, c trust.Case) (trust.Verdict, error) {
	j.cases = append(j.cases, c)
	return j.verdict, j.err
}

func TestNew_ListsAllProblems(t *testing.T) {
	_, err := trust.NewGate(trust.GateConfig{Level: "paranoid", Allow: []string{"with space"}, Admins: []string{"ED25519:ab"}, Invites: []string{"short"}})
	require.True(t, failure.Is(err, failure.AgentValidation))
	for _, want := range []string{`"paranoid"`, "Agent is missing", `"with space"`, `"ED25519:ab"`, "Invites[0]"} {
		require.ErrorContains(t, err, want)
	}
	require.NotContains(t, err.Error(), "short", "a code is a secret")
}

// Req: CO-62
func TestParseLevel_IsCarefulByDefault(t *testing.T) {
	level, err := trust.ParseLevel("")
	require.NoError(t, err)
	require.Equal(t, trust.Careful, level)

	_, err = trust.ParseLevel("Open")
	require.True(t, failure.Is(err, failure.AgentValidation))

	policies := map[string]bool{}
	for _, l := range []trust.Level{trust.Open, trust.Careful, trust.Strict} {
		policies[l.Policy()] = true
	}
	require.Len(t, policies, 3)
}
