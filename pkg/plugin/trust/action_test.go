package trust_test

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/troupe-dev/troupe/pkg/failure"
	"github.com/troupe-dev/troupe/pkg/plugin/trust"
)

type action func(g *trust.Gate, ctx context.Context, by, client string) (trust.State, error)

func promote(to trust.State) action {
	return func(g *trust.Gate, ctx context.Context, by, client string) (trust.State, error) {
		return g.Promote(ctx, by, client, to)
	}
}

func demote(to trust.State) action {
	return func(g *trust.Gate, ctx context.Context, by, client string) (trust.State, error) {
		return g.Demote(ctx, by, client, to)
	}
}

// Req: CO-62
func TestGate_ActionsMoveClients(t *testing.T) {
	states := []trust.State{trust.Stranger, trust.Contact, trust.Whitelisted, trust.Blocked, trust.Admin}
	const wrong = trust.State("")
	for name, tc := range map[string]struct {
		act  action
		want [5]trust.State // of a client that was in states[i]
	}{
		"promote to contact":     {promote(trust.Contact), [5]trust.State{trust.Contact, trust.Contact, wrong, wrong, wrong}},
		"promote to whitelisted": {promote(trust.Whitelisted), [5]trust.State{trust.Whitelisted, trust.Whitelisted, trust.Whitelisted, wrong, wrong}},
		"promote to stranger":    {promote(trust.Stranger), [5]trust.State{}},
		"promote to admin":       {promote(trust.Admin), [5]trust.State{}},
		"promote to blocked":     {promote(trust.Blocked), [5]trust.State{}},
		"promote to nothing":     {promote(""), [5]trust.State{}},
		"demote to contact":      {demote(trust.Contact), [5]trust.State{wrong, trust.Contact, trust.Contact, wrong, wrong}},
		"demote to stranger":     {demote(trust.Stranger), [5]trust.State{trust.Stranger, trust.Stranger, trust.Stranger, wrong, wrong}},
		"demote to whitelisted":  {demote(trust.Whitelisted), [5]trust.State{}},
		"demote to nothing":      {demote(""), [5]trust.State{}},
		"block":                  {(*trust.Gate).BlockClient, [5]trust.State{trust.Blocked, trust.Blocked, trust.Blocked, trust.Blocked, wrong}},
		"unblock":                {(*trust.Gate).Unblock, [5]trust.State{trust.Stranger, trust.Contact, trust.Whitelisted, trust.Stranger, trust.Admin}},
	} {
		t.Run(name, func(t *testing.T) {
			for i, from := range states {
				g := noonGate(t, trust.GateConfig{Store: storeWithState(t, "a", from)})
				for range 2 { // an action may be repeated
					got, err := tc.act(g, t.Context(), clientName(root), "a")
					require.Equal(t, tc.want[i], got, "from %s", from)
					if tc.want[i] == wrong {
						require.Equal(t, failure.UserInvalidInput, failure.ModeOf(err), "from %s", from)
					} else {
						require.NoError(t, err, "from %s", from)
					}
				}
				state, err := g.State(t.Context(), "a")
				require.NoError(t, err)
				if tc.want[i] == wrong {
					require.Equal(t, from, state)
				} else {
					require.Equal(t, tc.want[i], state)
				}
			}
		})
	}
}

// Req: CO-62
func TestGate_ActionsAreForAdmins(t *testing.T) {
	for _, state := range []trust.State{trust.Stranger, trust.Contact, trust.Whitelisted, trust.Blocked} {
		g := noonGate(t, trust.GateConfig{Store: storeWithState(t, "a", state)})
		for _, by := range []string{"a", ""} {
			for _, act := range []action{promote(trust.Contact), demote(trust.Stranger), (*trust.Gate).BlockClient, (*trust.Gate).Unblock} {
				_, err := act(g, t.Context(), by, "b")
				require.Equal(t, failure.UserPermission, failure.ModeOf(err))
			}
		}
	}
}

func TestGate_ActionsRejectInvalidNames(t *testing.T) {
	g := noonGate(t, trust.GateConfig{})
	for _, name := range []string{"", "a b", "a\n", "ED25519:ab", "ed25519:ab", "é"} {
		_, err := g.BlockClient(t.Context(), clientName(root), name)
		require.Equal(t, failure.UserInvalidInput, failure.ModeOf(err), name)
	}
}

func TestGate_ConfiguredAdminsStay(t *testing.T) {
	g := noonGate(t, trust.GateConfig{Admins: []string{"boss"}})
	for _, act := range []action{demote(trust.Stranger), (*trust.Gate).BlockClient} {
		_, err := act(g, t.Context(), clientName(root), "boss")
		require.Equal(t, failure.UserInvalidInput, failure.ModeOf(err))
	}
	state, err := g.State(t.Context(), "boss")
	require.NoError(t, err)
	require.Equal(t, trust.Admin, state)
}
