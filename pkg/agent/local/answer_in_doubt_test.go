package local_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/troupe-dev/troupe/pkg/agent"
	"github.com/troupe-dev/troupe/pkg/agent/local"
	"github.com/troupe-dev/troupe/pkg/conversation"
	"github.com/troupe-dev/troupe/pkg/event"
	"github.com/troupe-dev/troupe/pkg/execution"
	"github.com/troupe-dev/troupe/pkg/failure"
	"github.com/troupe-dev/troupe/pkg/llm/scripted"
	"github.com/troupe-dev/troupe/pkg/memory"
	"github.com/troupe-dev/troupe/pkg/memory/inmem"
	"github.com/troupe-dev/troupe/pkg/session"
)

// openGuardedOverConnection returns a session over a store whose calls can be lost. A tool call of the session
// waits for an approval.
func openGuardedOverConnection(t *testing.T) (s *local.Session, p execution.Pending, wires *lostMethods, store memory.Store, ran *[]string,
	model *scripted.Model,
) {
	t.Helper()
	wires, store = &lostMethods{}, inmem.New(inmem.Config{})
	_, s, ran, model = openGuarded(t, &lossyStore{store, wires.lost}, agent.Config{}, lookupReply("oslo"), scripted.Say("Sunny."), scripted.Say("Sunny."))
	return s, runUntilWaiting(t, s, "Weather?"), wires, store, ran, model
}

// Any store call of a turn with answers may be lost. The same answers, or Continue, then continue the turn, and
// the tool runs once.
// Req: LP-32
func TestSession_AppliesAnAnswerInDoubtOnce(t *testing.T) {
	for name, wires := range map[string]lostMethods{
		"it began":                        {answers: []string{"BeginTurn"}},
		"it did not begin":                {calls: []string{"BeginTurn"}},
		"the session was not read":        {calls: []string{"GetSession"}},
		"the waiting turn was not read":   {calls: []string{"FindTurn"}},
		"the journal was not read":        {calls: []string{"LoadJournal"}},
		"it was not stored":               {calls: []string{"CommitStep", "FailTurn"}},
		"the commit is in doubt":          {answers: []string{"CommitStep"}, calls: []string{"FailTurn"}},
		"commit and failure are in doubt": {answers: []string{"CommitStep", "FailTurn"}},
		"the lease, and then the rest":    {calls: []string{"RenewTurn", "CommitStep", "FailTurn"}},
	} {
		for _, continues := range []bool{false, true} {
			if continues && (name == "the session was not read" || name == "the waiting turn was not read") {
				continue // no answer was given
			}
			t.Run(name, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					s, p, now, store, ran, _ := openGuardedOverConnection(t)
					in := answerTo(p, execution.Approve, "")
					*now = wires
					ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
					defer cancel()
					_, err := runTurnUnder(ctx, t, s, in)
					require.Error(t, err)
					now.heal()
					if continues {
						in = local.Input{Continue: true}
					}
					began := time.Now()
					done := runAnswers(t, s, in)
					require.Less(t, time.Since(began), local.DefaultLease)
					require.Equal(t, 2, done.Turn)
					require.Equal(t, "Sunny.", done.Result.Text)
					require.Equal(t, []string{"oslo"}, *ran)
					require.Equal(t, session.Ready, s.State())
					require.Empty(t, s.Pending())
					said, info := storedMessages(t, store, s)
					require.Equal(t, []string{"user: Weather?", "ai: lookup waits for an approval.", "ai: → lookup", "tool: found oslo", "ai: Sunny."}, said)
					require.Equal(t, []int{2, 2}, []int{info.Turns, s.Info().Turns})
					require.Empty(t, info.WaitingTurn)
				})
			})
		}
	}
}

// While it is unknown whether a turn with answers began, different answers are rejected and run no tool.
func TestSession_RejectsADifferentAnswerInDoubt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, began := range []bool{false, true} {
			s, p, wires, store, ran, _ := openGuardedOverConnection(t)
			*wires = lostMethods{calls: []string{"BeginTurn"}}
			if began {
				*wires = lostMethods{answers: []string{"BeginTurn"}}
			}
			runToError(t, s, answerTo(p, execution.Approve, ""), failure.SystemNetwork)
			wires.heal()
			_, err := runTurn(t, s, answerTo(p, execution.Deny, "No."))
			if began {
				require.Equal(t, failure.UserInvalidInput, failure.ModeOf(err), "the first answer was taken")
			} else {
				require.NoError(t, err)
			}
			require.Empty(t, *ran)
			require.Empty(t, s.Pending())
			_, info := storedMessages(t, store, s)
			require.NotEqual(t, session.Busy, info.State)
			require.Equal(t, info.State, s.State())
		}
	})
}

// Another process has answered while the begin was in doubt. The answer of this process is rejected.
func TestSession_AnswerInDoubtLosesToAnotherProcess(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, next := range []func(execution.Pending) local.Input{
			func(p execution.Pending) local.Input { return answerTo(p, execution.Approve, "") },
			func(execution.Pending) local.Input { return local.Input{Continue: true} },
		} {
			s, p, wires, store, ran, model := openGuardedOverConnection(t)
			*wires = lostMethods{calls: []string{"BeginTurn"}}
			runToError(t, s, answerTo(p, execution.Approve, ""), failure.SystemNetwork)
			wires.heal()
			a, _, _, _ := openGuarded(t, store, agent.Config{}, scripted.Say("Then not."))
			require.Equal(t, "Then not.", runAnswers(t, openSession(t, a, local.Config{Store: store, ID: s.ID()}), answerTo(p, execution.Deny, "")).Result.Text)
			_, err := runTurn(t, s, next(p))
			require.Equal(t, failure.UserInvalidInput, failure.ModeOf(err), "%v", err)
			require.ErrorContains(t, err, "no call waits")
			require.Empty(t, *ran)
			require.Equal(t, "Sunny.", runAnswers(t, s, local.Input{Continue: true}).Result.Text)
			require.Len(t, model.Requests(), 2)
		}
	})
}

// After an outage it is unknown whether the turn with the pending call was stored. Continue returns the pending
// calls. A caller that already knows them may answer at once.
// Req: LP-8, LP-16
func TestSession_FindsAnUndeliveredPendingCall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, stored := range []bool{true, false} {
			for _, tells := range []bool{true, false} {
				if !stored && !tells {
					continue
				}
				wires, store := &lostMethods{}, inmem.New(inmem.Config{})
				_, s, ran, model := openGuarded(t, &lossyStore{store, wires.lost}, agent.Config{}, lookupReply("oslo"), scripted.Say("Sunny."))
				*wires = lostMethods{answers: []string{"CommitStep"}, calls: []string{"FailTurn"}}
				if !stored {
					*wires = lostMethods{calls: []string{"CommitStep", "FailTurn"}}
				}
				var delivered execution.Pending
				for e, err := range s.Turn(t.Context(), local.Input{Text: "Weather?"}) {
					if err != nil {
						require.Equal(t, failure.SystemNetwork, failure.ModeOf(err))
					}
					if p, ok := e.Payload.(event.ToolPending); ok {
						delivered = p.Pending
					}
				}
				require.Equal(t, session.Failed, s.State())
				wires.heal()
				if tells {
					done := runAnswers(t, s, local.Input{Continue: true})
					require.Equal(t, []int{1, 1}, []int{done.Turn, len(done.Messages)})
					require.Equal(t, event.InputRequired, done.Reason)
					require.Equal(t, []execution.Pending{delivered}, done.Result.Pending)
					require.Equal(t, session.InputRequired, s.State())
					require.Equal(t, []execution.Pending{delivered}, s.Pending())
				}
				require.Equal(t, "Sunny.", runAnswers(t, s, answerTo(delivered, execution.Approve, "")).Result.Text)
				require.Equal(t, []string{"oslo"}, *ran)
				require.Len(t, model.Requests(), 2)
			}
		}
	})
}

// While one process continues a turn with answers, other processes cannot. If that process is lost, the process
// that takes over still has the answers.
// Req: LP-10a, LP-32
func TestSession_LostTurnKeepsItsAnswers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, p, wires, store, ran, _ := openGuardedOverConnection(t)
		in := answerTo(p, execution.Approve, "")
		*wires = lostMethods{calls: []string{"LoadJournal", "RenewTurn", "FailTurn"}}
		_, err := runTurn(t, s, in)
		require.Error(t, err)
		a, _, ranThere, model := openGuarded(t, store, agent.Config{}, scripted.Say("Sunny."))
		other := openSession(t, a, local.Config{Store: store, ID: s.ID()})
		_, info := storedMessages(t, store, s)
		ref := session.Ref{Tenant: local.DefaultTenant, Session: s.ID()}
		begun, err := store.BeginTurn(t.Context(), memory.Begin{
			Ref: ref, TurnID: info.OpenTurn, TraceID: "0af7651916cd43dd8448eb211c80319c", Fingerprint: info.OpenTurn, LeaseTTL: time.Minute, Window: 1,
		})
		require.NoError(t, err)
		require.Equal(t, memory.StatusBegun, begun.Status, "the lease of the lost process has ended")
		_, err = other.Execute(t.Context(), in, nil)
		require.Equal(t, failure.SessionBusy, failure.ModeOf(err), "another one works on it")
		require.NoError(t, store.ReleaseTurn(t.Context(), memory.Lease{Ref: ref, TurnID: info.OpenTurn, Epoch: begun.Turn.Epoch}))
		_, err = runTurn(t, other, in)
		require.Equal(t, failure.UserInvalidInput, failure.ModeOf(err))
		require.ErrorContains(t, err, "Set Continue")
		done := runAnswers(t, other, local.Input{Continue: true})
		require.Equal(t, []any{2, "Sunny."}, []any{done.Turn, done.Result.Text})
		require.Empty(t, *ran)
		require.Equal(t, []string{"oslo"}, *ranThere)
		require.Len(t, model.Requests(), 1)
		messages, err := other.Messages(t.Context(), 0)
		require.NoError(t, err)
		require.NoError(t, conversation.CheckRounds(messages))
	})
}
