package local_test

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/troupe-dev/troupe/pkg/agent"
	"github.com/troupe-dev/troupe/pkg/agent/local"
	"github.com/troupe-dev/troupe/pkg/conversation"
	"github.com/troupe-dev/troupe/pkg/execution"
	"github.com/troupe-dev/troupe/pkg/failure"
	"github.com/troupe-dev/troupe/pkg/llm/scripted"
	"github.com/troupe-dev/troupe/pkg/memory"
	"github.com/troupe-dev/troupe/pkg/session"
)

// Req: LP-32
func answerInvalidIsRejected(t *testing.T, store memory.Store) {
	_, s, ran, _ := openGuarded(t, store, agent.Config{}, lookupReply("oslo"), scripted.Say("Sunny."))
	_, err := runTurn(t, s, local.Input{Answers: []execution.Answer{{ID: "1-1-1", Verdict: execution.Approve}}})
	require.Equal(t, failure.UserInvalidInput, failure.ModeOf(err), "nothing waits yet")
	p := runUntilWaiting(t, s, "Weather?")
	yes := execution.Answer{ID: p.ID, Verdict: execution.Approve}
	for name, in := range map[string]local.Input{
		"with a text":       {Text: "a", Answers: []execution.Answer{yes}},
		"and goes on":       {Continue: true, Answers: []execution.Answer{yes}},
		"no UTF-8":          {Answers: []execution.Answer{{ID: p.ID, Verdict: execution.Deny, Text: "\xff"}}},
		"of another call":   {Answers: []execution.Answer{{ID: "1-9-9", Verdict: execution.Approve}}},
		"of another need":   {Answers: []execution.Answer{{ID: p.ID, Verdict: execution.Succeed}}},
		"twice":             {Answers: []execution.Answer{yes, yes}},
		"too long":          {Answers: []execution.Answer{{ID: p.ID, Verdict: execution.Deny, Text: strings.Repeat("a", execution.MaxAnswerBytes+1)}}},
		"none, and no text": {Continue: true},
	} {
		all, err := runTurn(t, s, in)
		require.Equal(t, failure.UserInvalidInput, failure.ModeOf(err), name)
		require.Len(t, all, 1, name)
		require.Equal(t, session.InputRequired, s.State(), name)
		require.Equal(t, []execution.Pending{p}, s.Pending(), name)
	}
	_, info := storedMessages(t, store, s)
	require.Equal(t, 1, info.Turns)
	require.Empty(t, *ran)
	require.Equal(t, "Sunny.", runAnswers(t, s, local.Input{Answers: []execution.Answer{yes}}).Result.Text)
	_, err = runTurn(t, s, local.Input{Answers: []execution.Answer{yes}})
	require.Equal(t, failure.UserInvalidInput, failure.ModeOf(err), "it was answered")
	require.Len(t, *ran, 1)
}

// If several processes answer at once, only one of them continues the turn, and the call runs once.
func answerFirstOfSeveralProcessesWins(t *testing.T, store memory.Store) {
	a, s, ran, _ := openGuarded(t, store, agent.Config{}, lookupReply("oslo"), scripted.Say("Sunny."))
	in := answerTo(runUntilWaiting(t, s, "Weather?"), execution.Approve, "")
	ended := make(chan error)
	for range 4 {
		again := openSession(t, a, local.Config{Store: store, ID: s.ID()})
		go func() {
			_, err := again.Execute(t.Context(), in, nil)
			ended <- err
		}()
	}
	won := 0
	for range 4 {
		err := <-ended
		if err == nil {
			won++
			continue
		}
		require.True(t, failure.Is(err, failure.SessionBusy, failure.UserInvalidInput), "%v", err)
	}
	require.Equal(t, 1, won)
	require.Equal(t, []string{"oslo"}, *ran)
	_, info := storedMessages(t, store, s)
	require.Equal(t, 2, info.Turns)
}

// Only the agent that made the pending calls can continue with them. A turn that began in a mesh can only be
// continued there.
func answerToAnotherAgentsCallIsRejected(t *testing.T, store memory.Store) {
	_, s, ran, _ := openGuarded(t, store, agent.Config{}, lookupReply("oslo"), scripted.Say("Sunny."))
	in := answerTo(runUntilWaiting(t, s, "Weather?"), execution.Approve, "")
	other, _ := scriptedAgent(t, agent.Config{Name: "other"}, scripted.Say("What?"))
	_, err := runTurn(t, openSession(t, other, local.Config{Store: store, ID: s.ID()}), in)
	require.Equal(t, failure.UserInvalidInput, failure.ModeOf(err))
	require.ErrorContains(t, err, "of agent research")
	require.Equal(t, "Sunny.", runAnswers(t, s, in).Result.Text)
	require.Len(t, *ran, 1)

	mesh := openSession(t, other, local.Config{Store: store})
	ref := session.Ref{Tenant: local.DefaultTenant, Session: mesh.ID()}
	begun, err := store.BeginTurn(t.Context(), memory.Begin{
		Ref: ref, TurnID: "t", TraceID: "0af7651916cd43dd8448eb211c80319c", Fingerprint: "of the mesh",
		Message: conversation.User("Weather?"), LeaseTTL: time.Minute, Window: 10,
	})
	require.NoError(t, err)
	_, err = store.CommitStep(t.Context(), memory.Commit{
		Ref: ref, TurnID: "t", Epoch: begun.Turn.Epoch, Base: 1, Outcome: session.OutcomeInputRequired,
		Result: execution.Result{Step: 1, Agent: "other", InputRequired: true, Pending: []execution.Pending{{
			ID: "1-1-2", Tool: "x",
			Needs: execution.NeedApproval,
		}}},
	})
	require.NoError(t, err)
	_, err = runTurn(t, mesh, answerTo(execution.Pending{ID: "1-1-2"}, execution.Approve, ""))
	require.Equal(t, failure.UserInvalidInput, failure.ModeOf(err))
	require.ErrorContains(t, err, "in the mesh")
}

// Without a journal no other process could continue the turn. So a call that needs an approval does not wait, but
// fails.
func answerNeedsAJournal(t *testing.T, store memory.Store) {
	a, waits, ran, _ := openGuarded(t, store, agent.Config{}, lookupReply("oslo"), lookupReply("oslo"), scripted.Say("I may not."), scripted.Say("Fine."))
	p := runUntilWaiting(t, waits, "Weather?")
	s := openSession(t, a, local.Config{Store: store, NoAutoSave: true})
	require.Equal(t, "I may not.", ask(t, s, "Weather?").Result.Text)
	require.Empty(t, *ran)
	_, err := runTurn(t, s, answerTo(p, execution.Approve, ""))
	require.Equal(t, failure.UserInvalidInput, failure.ModeOf(err))

	same := openSession(t, a, local.Config{Store: store, ID: waits.ID(), NoAutoSave: true})
	require.Equal(t, session.InputRequired, same.State())
	require.Equal(t, []execution.Pending{p}, same.Pending())
	for _, in := range []local.Input{answerTo(p, execution.Approve, ""), {Continue: true}} {
		_, err = runTurn(t, same, in)
		require.Equal(t, failure.UserInvalidInput, failure.ModeOf(err))
	}
	ask(t, same, "Leave it.")
	require.Empty(t, same.Pending())
	require.NoError(t, same.Save(t.Context()))
	_, info := storedMessages(t, store, waits)
	require.Empty(t, info.WaitingTurn)
}
