package trust_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"

	"github.com/troupe-dev/troupe/pkg/failure"
	"github.com/troupe-dev/troupe/pkg/plugin/trust"
)

// Req: CO-62
func TestGate_DecidesByLevelStateSignatureAndJudge(t *testing.T) {
	const allow, refuse, ask = "allow", "refuse", "ask"
	rules := map[trust.Level]map[trust.State]string{
		trust.Open:    {trust.Blocked: refuse, trust.Stranger: allow, trust.Contact: allow, trust.Whitelisted: allow, trust.Admin: allow},
		trust.Careful: {trust.Blocked: refuse, trust.Stranger: ask, trust.Contact: allow, trust.Whitelisted: allow, trust.Admin: allow},
		trust.Strict:  {trust.Blocked: refuse, trust.Stranger: refuse, trust.Contact: refuse, trust.Whitelisted: allow, trust.Admin: allow},
	}
	malformed, forged, unsigned := signedVisit(alice), signedVisit(alice), signedVisit(alice)
	malformed.Signature += " "
	forged.Text += " And the money?"
	unsigned.Signature, unsigned.Client = "", clientName(alice)
	signatures := map[string]struct {
		visit trust.Visit
		wrong bool
	}{
		"none":       {unsigned, false},
		"right":      {signedVisit(alice), false},
		"malformed":  {malformed, true},
		"forged":     {forged, true},
		"too old":    {signedVisitAt(alice, noon.Add(-trust.Window-time.Millisecond)), true},
		"too early":  {signedVisitAt(alice, noon.Add(trust.Window+time.Millisecond)), true},
		"just right": {signedVisitAt(alice, noon.Add(-trust.Window)), false},
	}
	judges := map[string]struct {
		judge  *fixedJudge
		allows bool
	}{
		"none":       {nil, false},
		"allows":     {&fixedJudge{verdict: trust.Verdict{Allow: true, Reason: "harmless"}}, true},
		"refuses":    {&fixedJudge{verdict: trust.Verdict{Reason: "greedy"}}, false},
		"fails":      {&fixedJudge{verdict: trust.Verdict{Allow: true, Reason: "harmless"}, err: errors.New("out of order")}, false},
		"no verdict": {&fixedJudge{}, false},
		"no reason":  {&fixedJudge{verdict: trust.Verdict{Allow: true}}, false},
	}
	for level, states := range rules {
		for state, rule := range states {
			for sign, signature := range signatures {
				for says, j := range judges {
					t.Run(fmt.Sprintf("%s/%s/signature %s/judge %s", level, state, sign, says), func(t *testing.T) {
						config := trust.GateConfig{Level: level, Store: storeWithState(t, clientName(alice), state)}
						asked := 0
						if j.judge != nil {
							config.Judge, asked = j.judge, len(j.judge.cases)
						}
						got, err := noonGate(t, config).Decide(t.Context(), signature.visit)

						want := trust.Decision{Allowed: rule == allow, DecidedBy: trust.DecidedByRule, Client: clientName(alice), State: state}
						mode := failure.UserPermission
						switch {
						case signature.wrong:
							want = trust.Decision{DecidedBy: trust.DecidedBySignature, State: trust.Stranger}
							mode = failure.PolicySecurity
						case rule == ask && j.judge != nil:
							want.Allowed, want.DecidedBy = j.allows, trust.DecidedByJudge
							asked++
						}
						require.NotEmpty(t, got.Reason)
						got.Reason = ""
						require.Empty(t, cmp.Diff(want, got))
						require.Equal(t, want.Allowed, err == nil)
						if err != nil {
							require.Equal(t, mode, failure.ModeOf(err))
						}
						if j.judge != nil {
							require.Len(t, j.judge.cases, asked, "the judge costs tokens")
						}
					})
				}
			}
		}
	}
}

// Req: CO-62
func TestGate_AcceptsASignatureOnce(t *testing.T) {
	for _, level := range []trust.Level{trust.Open, trust.Careful, trust.Strict} {
		now := noon
		g := noonGate(t, trust.GateConfig{Level: level, Store: storeWithState(t, clientName(alice), trust.Whitelisted), Now: func() time.Time { return now }})
		ahead := signedVisitAt(alice, noon.Add(trust.Window))
		_, err := g.Decide(t.Context(), ahead)
		require.NoError(t, err)
		for range 12 { // while the signature is in the window, and longer
			decision, err := g.Decide(t.Context(), ahead)
			require.Equal(t, failure.PolicySecurity, failure.ModeOf(err))
			require.Equal(t, trust.DecidedBySignature, decision.DecidedBy)
			now = now.Add(time.Minute)
		}
		_, err = g.Decide(t.Context(), signedVisitAt(alice, now))
		require.NoError(t, err, "the same text may be signed again")
	}
}

func TestGate_AcceptsASignatureOnceAmongConcurrentVisits(t *testing.T) {
	g := noonGate(t, trust.GateConfig{Level: trust.Open})
	var wg sync.WaitGroup
	results := make(chan error, 20)
	for range cap(results) {
		wg.Go(func() {
			_, err := g.Decide(t.Context(), signedVisit(alice))
			results <- err
		})
	}
	wg.Wait()
	close(results)
	taken := 0
	for err := range results {
		if err == nil {
			taken++
		}
	}
	require.Equal(t, 1, taken)
}

func TestGate_RemembersASignatureAcrossStates(t *testing.T) {
	g := noonGate(t, trust.GateConfig{Level: trust.Open})
	_, err := g.Decide(t.Context(), signedVisit(alice))
	require.NoError(t, err)
	_, err = g.Promote(t.Context(), clientName(root), clientName(alice), trust.Contact)
	require.NoError(t, err)
	_, err = g.Decide(t.Context(), signedVisit(alice))
	require.Equal(t, failure.PolicySecurity, failure.ModeOf(err))
}

// A client that does not prove its identity gets none of the rights of the client that it claims to be.
func TestGate_IgnoresClaimsInTheRequest(t *testing.T) {
	g := noonGate(t, trust.GateConfig{Level: trust.Strict, Store: storeWithState(t, clientName(alice), trust.Whitelisted)})

	decision, err := g.Decide(t.Context(), trust.Visit{Text: question})
	require.Error(t, err)
	require.Empty(t, cmp.Diff(trust.Decision{DecidedBy: trust.DecidedByRule, State: trust.Stranger, Reason: decision.Reason}, decision))

	mallory := signedVisit(newKey(3))
	mallory.Client = clientName(alice) // the identity from the transport does not replace the signer
	decision, err = g.Decide(t.Context(), mallory)
	require.Error(t, err)
	require.Equal(t, clientName(newKey(3)), decision.Client)
}

func TestGate_RejectsABlockedTransportWithAnySignature(t *testing.T) {
	g := noonGate(t, trust.GateConfig{Level: trust.Open, Store: storeWithState(t, "gateway", trust.Blocked)})
	visit := signedVisit(root)
	visit.Client = "gateway"
	decision, err := g.Decide(t.Context(), visit)
	require.Equal(t, failure.UserPermission, failure.ModeOf(err))
	require.Equal(t, trust.Blocked, decision.State)
}

// Req: CO-62
func TestGate_InviteMakesAStrangerAContact(t *testing.T) {
	invited := signedVisit(alice)
	invited.Invite = invite
	stranger := &fixedJudge{verdict: trust.Verdict{Reason: "no"}}
	g := noonGate(t, trust.GateConfig{Invites: []string{"another-invite-code", invite}, Judge: stranger})

	decision, err := g.Decide(t.Context(), invited)
	require.NoError(t, err)
	require.Equal(t, trust.DecidedByRule, decision.DecidedBy)
	require.Equal(t, trust.Stranger, decision.State)

	decision, err = g.Decide(t.Context(), signedVisitAt(alice, noon.Add(time.Second)))
	require.NoError(t, err)
	require.Equal(t, trust.Contact, decision.State)
	require.Empty(t, stranger.cases)
}

func TestGate_InviteDoesNotCount(t *testing.T) {
	for name, tc := range map[string]struct {
		level trust.Level
		state trust.State
		code  string
	}{
		"at level strict": {trust.Strict, trust.Stranger, invite},
		"of a blocked":    {trust.Careful, trust.Blocked, invite},
		"if wrong":        {trust.Careful, trust.Stranger, invite + "x"},
		"if empty":        {trust.Careful, trust.Stranger, ""},
	} {
		t.Run(name, func(t *testing.T) {
			g := noonGate(t, trust.GateConfig{Level: tc.level, Invites: []string{invite}, Store: storeWithState(t, clientName(alice), tc.state)})
			visit := signedVisit(alice)
			visit.Invite = tc.code
			_, err := g.Decide(t.Context(), visit)
			require.Equal(t, failure.UserPermission, failure.ModeOf(err))
			state, err := g.State(t.Context(), clientName(alice))
			require.NoError(t, err)
			require.Equal(t, tc.state, state)
		})
	}
}

func TestGate_InviteOfAnUnnamedClientCountsOnce(t *testing.T) {
	g := noonGate(t, trust.GateConfig{Invites: []string{invite}})
	_, err := g.Decide(t.Context(), trust.Visit{Text: question, Invite: invite})
	require.NoError(t, err)
	_, err = g.Decide(t.Context(), trust.Visit{Text: question})
	require.Equal(t, failure.UserPermission, failure.ModeOf(err))
}

func TestGate_AllowListCountsAtLevelCareful(t *testing.T) {
	for level, want := range map[trust.Level]bool{trust.Careful: true, trust.Strict: false} {
		_, err := noonGate(t, trust.GateConfig{Level: level, Allow: []string{clientName(alice)}}).Decide(t.Context(), signedVisit(alice))
		require.Equal(t, want, err == nil)
	}
}

func TestGate_HidesReasonsOfJudges(t *testing.T) {
	for name, j := range map[string]*fixedJudge{
		"refuses": {verdict: trust.Verdict{Reason: "the words of a model"}},
		"fails":   {err: failure.New(failure.ResourceAPI, "test", "the words of a model")},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := noonGate(t, trust.GateConfig{Judge: j}).Decide(t.Context(), signedVisit(alice))
			require.NotContains(t, failure.PlainMessage(err), "words of a model")
			if j.err != nil {
				require.Equal(t, failure.ResourceAPI, failure.ModeOf(err), "so that the caller may try again")
				require.ErrorIs(t, err, j.err)
			}
		})
	}
}

func TestGate_GivesTheJudgeTheFacts(t *testing.T) {
	j := &fixedJudge{verdict: trust.Verdict{Allow: true, Reason: "harmless"}}
	g := noonGate(t, trust.GateConfig{Judge: j, Policy: "Be kind."})
	decision, err := g.Decide(t.Context(), signedVisit(alice))
	require.NoError(t, err)
	require.Equal(t, "harmless", decision.Reason)
	want := []trust.Case{{Agent: librarian, Policy: "Be kind.", Client: clientName(alice), State: trust.Stranger, Signed: true, Text: question}}
	require.Empty(t, cmp.Diff(want, j.cases))
}

func TestGate_RejectsInvalidClientNames(t *testing.T) {
	_, err := noonGate(t, trust.GateConfig{Level: trust.Open}).Decide(t.Context(), trust.Visit{Text: question, Client: "Jane Doe"})
	require.Equal(t, failure.UserPermission, failure.ModeOf(err))
}

// unknownStateStore is a store whose clients have no valid state.
type unknownStateStore struct{ trust.RAMStore }

func (*unknownStateStore) State(context.Context, string) (trust.State, error) { return "", nil }

func TestGate_RejectsClientsWithUnknownStates(t *testing.T) {
	_, err := noonGate(t, trust.GateConfig{Level: trust.Open, Store: &unknownStateStore{}}).Decide(t.Context(), signedVisit(alice))
	require.Equal(t, failure.AgentContract, failure.ModeOf(err))
}

// A client that is blocked while the gate checks its invite stays blocked.
func TestGate_InviteDoesNotUnblock(t *testing.T) {
	store := &blockingStore{}
	visit := signedVisit(alice)
	visit.Invite = invite
	_, err := noonGate(t, trust.GateConfig{Store: store, Invites: []string{invite}}).Decide(t.Context(), visit)
	require.Equal(t, failure.UserPermission, failure.ModeOf(err))
}

// blockingStore is a store in which every client is blocked between a read and a change.
type blockingStore struct{ trust.RAMStore }

func (*blockingStore) Change(_ context.Context, _ string, to func(trust.State) (trust.State, error)) (trust.State, error) {
	return to(trust.Blocked)
}
