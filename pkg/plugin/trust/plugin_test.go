package trust_test

import (
	"context"
	"crypto/ed25519"
	"errors"
	"fmt"
	"os"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"github.com/troupe-dev/troupe/pkg/agent"
	"github.com/troupe-dev/troupe/pkg/conversation"
	"github.com/troupe-dev/troupe/pkg/event"
	"github.com/troupe-dev/troupe/pkg/execution"
	"github.com/troupe-dev/troupe/pkg/failure"
	"github.com/troupe-dev/troupe/pkg/hook"
	"github.com/troupe-dev/troupe/pkg/llm/scripted"
	"github.com/troupe-dev/troupe/pkg/plugin/trust"
	"github.com/troupe-dev/troupe/pkg/secret"
)

const (
	loanRequest = "May I borrow a book?"
	inviteCode  = "an-invite-for-tests"
)

var reader = ed25519.NewKeyFromSeed(make([]byte, ed25519.SeedSize))

func signedQuestion(at time.Time) string {
	return trust.Sign(reader, trust.Request{Agent: "librarian", Text: loanRequest, Time: at}).String()
}

func withCredentials(actor, signature, invite string) execution.Auth {
	auth := execution.Auth{Actor: actor, Credentials: map[string]secret.Value{}}
	for name, text := range map[string]string{trust.SignatureCredential: signature, trust.InviteCredential: invite} {
		if text != "" {
			auth.Credentials[name] = secret.New(text)
		}
	}
	return auth
}

func newTrustingAgent(t *testing.T, c trust.Config, handlers ...hook.Handler) *agent.Agent {
	t.Helper()
	c.Gate.Agent = "librarian"
	p, err := trust.New(c)
	require.NoError(t, err)
	var replies []scripted.Reply
	for range 10 {
		replies = append(replies, scripted.Say("Yes."))
	}
	a, err := agent.New(agent.Config{Name: "librarian", Model: scripted.New(replies...), Plugins: []hook.Plugin{p}, Handlers: handlers})
	require.NoError(t, err)
	return a
}

// runTurn runs a turn of the agent with the given credentials.
func runTurn(ctx context.Context, a *agent.Agent, auth execution.Auth, step execution.Step) error {
	ctx, end := context.WithCancel(ctx)
	defer end()
	message := conversation.User(loanRequest)
	if step.History != nil {
		message = step.History[0]
	}
	step.History = []conversation.Message{message}
	_, err := a.Execute(execution.WithAuth(ctx, auth), agent.Invocation{Step: step}, func(event.Event) error { return nil })
	return err
}

type judgeFunc func(context.Context, trust.Case) (trust.Verdict, error)

func (j judgeFunc) Decide(ctx context.Context, c trust.Case) (trust.Verdict, error) { return j(ctx, c) }

// Req: CO-7, CO-61, CO-62
func TestTrust_DecidesWhoMayUseTheAgent(t *testing.T) {
	says := func(v trust.Verdict, err error) trust.Judge {
		return judgeFunc(func(context.Context, trust.Case) (trust.Verdict, error) { return v, err })
	}
	now := signedQuestion(time.Now())
	for name, tc := range map[string]struct {
		config trust.Config
		auth   execution.Auth
		want   failure.Mode // (empty means that the client is admitted)
	}{
		"a stranger":  {trust.Config{}, withCredentials("", "", ""), failure.UserPermission},
		"open to all": {trust.Config{Gate: trust.GateConfig{Level: trust.Open}}, withCredentials("", "", ""), ""},
		"an invite":   {trust.Config{Gate: trust.GateConfig{Invites: []string{inviteCode}}}, withCredentials("", "", inviteCode), ""},
		"a wrong invite": {
			trust.Config{Gate: trust.GateConfig{Invites: []string{inviteCode}}},
			withCredentials("", "", inviteCode+"x"),
			failure.UserPermission,
		},
		"a signature": {
			trust.Config{Gate: trust.GateConfig{Allow: []string{trust.ClientOf(reader.Public().(ed25519.PublicKey))}}},
			withCredentials("", now, ""), "",
		},
		"an old signature": {trust.Config{Gate: trust.GateConfig{Level: trust.Open}}, withCredentials("", signedQuestion(time.Now().Add(-time.Hour)),
			""), failure.PolicySecurity},
		"a broken signature":   {trust.Config{Gate: trust.GateConfig{Level: trust.Open}}, withCredentials("", now+"0", ""), failure.PolicySecurity},
		"a claim":              {trust.Config{Gate: trust.GateConfig{Admins: []string{"root"}}}, withCredentials("root", "", ""), failure.UserPermission},
		"a claim that is true": {trust.Config{Gate: trust.GateConfig{Admins: []string{"root"}}, TrustActor: true}, withCredentials("root", "", ""), ""},
		"the judge allows": {trust.Config{Gate: trust.GateConfig{Judge: says(trust.Verdict{Allow: true, Reason: "nice"}, nil)}}, withCredentials("",
			"", ""), ""},
		"the judge refuses": {
			trust.Config{Gate: trust.GateConfig{Judge: says(trust.Verdict{Reason: "greedy"}, nil)}},
			withCredentials("", "", ""),
			failure.UserPermission,
		},
		"the judge fails": {
			trust.Config{Gate: trust.GateConfig{Judge: says(trust.Verdict{}, errors.New("down"))}},
			withCredentials("", "", ""),
			failure.UserPermission,
		},
		"no auth and no client": {trust.Config{Gate: trust.GateConfig{Level: trust.Strict}, TrustActor: true}, execution.Auth{}, failure.UserPermission},
	} {
		t.Run(name, func(t *testing.T) {
			ran := false
			a := newTrustingAgent(t, tc.config, hook.AfterUserInput(func(context.Context, *hook.Turn) error { ran = true; return nil }))
			err := runTurn(t.Context(), a, tc.auth, execution.Step{TurnID: "t"})
			require.Equal(t, tc.want == "", ran)
			if tc.want == "" {
				require.NoError(t, err)
				return
			}
			require.Equal(t, tc.want, failure.ModeOf(err), "%v", err)
			require.NotContains(t, err.Error(), inviteCode)
		})
	}
}

// Req: CO-62
func TestTrust_AcceptsASignatureForOneTurn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, other := newTrustingAgent(t, trust.Config{Gate: trust.GateConfig{Level: trust.Open}}), newTrustingAgent(t,
			trust.Config{Gate: trust.GateConfig{Level: trust.Open}})
		sent := time.Now()
		auth := withCredentials("", signedQuestion(sent), "")
		stored := conversation.User(loanRequest)
		stored.Time = sent.Add(time.Second)
		step := execution.Step{TurnID: "one", Attempt: 1, History: []conversation.Message{stored}}

		require.NoError(t, runTurn(t.Context(), a, auth, step))
		require.NoError(t, runTurn(t.Context(), a, auth, step), "a later step of the turn")
		another := step
		another.TurnID = "two"
		require.Equal(t, failure.PolicySecurity, failure.ModeOf(runTurn(t.Context(), a, auth, another)), "the same signature again")

		<-time.After(time.Hour)
		successor := step
		successor.Attempt = 2
		require.NoError(t, runTurn(t.Context(), other, auth, successor), "the signature is as old as it was for the first attempt")
		successor.TurnID = "two"
		require.NoError(t, runTurn(t.Context(), other, auth, successor), "what was used before is not known to a successor")
		successor.TurnID, successor.History = "three", []conversation.Message{{Role: conversation.RoleUser, Text: loanRequest, Time: sent.Add(time.Hour)}}
		require.Equal(t, failure.PolicySecurity, failure.ModeOf(runTurn(t.Context(), other, auth, successor)), "it was too old then")
	})
}

func TestTrust_DecidesAgainAfterARefusal(t *testing.T) {
	verdict := trust.Verdict{Reason: "not now"}
	a := newTrustingAgent(t, trust.Config{Gate: trust.GateConfig{Judge: judgeFunc(func(context.Context, trust.Case) (trust.Verdict, error) {
		return verdict,
			nil
	})}})
	require.Error(t, runTurn(t.Context(), a, execution.Auth{}, execution.Step{TurnID: "t", Attempt: 1}))
	verdict.Allow = true
	require.NoError(t, runTurn(t.Context(), a, execution.Auth{}, execution.Step{TurnID: "t", Attempt: 2}))
	verdict.Allow = false
	require.NoError(t, runTurn(t.Context(), a, execution.Auth{}, execution.Step{TurnID: "t", Attempt: 2}), "once a turn")
	for range 2 {
		require.Error(t, runTurn(t.Context(), a, execution.Auth{}, execution.Step{}), "a turn without an id is not remembered")
	}
}

// The agent that judges has the same plugin, but its own turns are not judged.
// Req: CO-61
func TestTrust_ExemptsTheJudge(t *testing.T) {
	var a *agent.Agent
	asked := 0
	a = newTrustingAgent(t, trust.Config{Gate: trust.GateConfig{Judge: judgeFunc(func(ctx context.Context, c trust.Case) (trust.Verdict, error) {
		asked++
		step := execution.Step{TurnID: "judging", History: []conversation.Message{conversation.User(c.Text)}}
		done, err := a.Execute(ctx, agent.Invocation{Step: step}, func(event.Event) error { return nil })
		return trust.Verdict{Allow: done.Result.Text == "Yes.", Reason: "the agent said so"}, err
	})}})
	require.NoError(t, runTurn(t.Context(), a, execution.Auth{}, execution.Step{TurnID: "t"}))
	require.Equal(t, 1, asked)
}

func TestTrust_LogsEachDecision(t *testing.T) {
	core, logs := observer.New(zap.InfoLevel)
	a := newTrustingAgent(t, trust.Config{Gate: trust.GateConfig{Level: trust.Open}, Log: zap.New(core)})
	require.NoError(t, runTurn(t.Context(), a, withCredentials("", "", inviteCode), execution.Step{TurnID: "t"}))
	require.Equal(t, map[string]any{
		"agent": "librarian", "turn": "t", "allowed": true, "by": "rule", "reason": "the agent is open to all", "client": "", "state": "stranger",
	}, logs.All()[0].ContextMap())
}

func TestNew_RejectsAnInvalidGate(t *testing.T) {
	_, err := trust.New(trust.Config{Gate: trust.GateConfig{Agent: "librarian", Level: "paranoid"}})
	require.True(t, failure.Is(err, failure.AgentValidation))
	require.ErrorContains(t, err, `Level: trust level "paranoid" is not known`)
}

// This agent admits clients that have an invite.
func Example() {
	p, err := trust.New(trust.Config{Gate: trust.GateConfig{Agent: "librarian", Invites: []string{inviteCode}}})
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return
	}
	librarian, err := agent.New(agent.Config{Name: "librarian", Model: scripted.New(scripted.Say("Yes.")), Plugins: []hook.Plugin{p}})
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return
	}
	for i, code := range []string{"", inviteCode} {
		err := runTurn(context.Background(), librarian, withCredentials("", "", code), execution.Step{TurnID: fmt.Sprint(i)})
		fmt.Fprintln(os.Stdout, failure.ModeOf(err))
	}
	// Output:
	// user_permission
	//
}
