package turn

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/troupe-dev/troupe/internal/broker"
	"github.com/troupe-dev/troupe/pkg/execution"
	"github.com/troupe-dev/troupe/pkg/failure"
	troupev1 "github.com/troupe-dev/troupe/pkg/gen/troupe/v1"
	"github.com/troupe-dev/troupe/pkg/session"
)

// credentialCall returns a pending call of research that needs a credential, sealed to the key of an instance.
func credentialCall(t *testing.T, instance string, left time.Duration) *troupev1.PendingCall {
	t.Helper()
	key, err := broker.New(instance).CreateKey("s1", "mailbox")
	require.NoError(t, err)
	call := approvalCall()
	call.Needs, call.Until = troupev1.CallNeed_CALL_NEED_AUTH, timestamppb.New(time.Now().Add(left))
	call.Auth = &troupev1.PendingAuth{AuthId: key.ID, Name: "mailbox", Prompt: "Your password.", PublicKey: key.Public, Expires: call.GetUntil()}
	return call
}

func sealedAnswer(id string) execution.Answer {
	return execution.Answer{ID: id, Verdict: execution.Approve, Sealed: "\x00sealed\xff"}
}

// A turn with a sealed credential continues on the instance that has the key. Watchers do not see the credential,
// not even sealed.
// Req: LP-37
func TestTurn_SendsACredentialToTheInstanceWithItsKey(t *testing.T) {
	rig := newRig(t)
	rig.addInstances("research", 3)
	runner := rig.newRunner(t, "one")
	for n := range 3 {
		instance := fmt.Sprintf("research-%d", n+2)
		call := credentialCall(t, instance, time.Minute)
		rig.makeResearchWait(call)
		req := textRequest(fmt.Sprint("s", n), "r1")
		asked := runToEnd(t, runner, req)
		require.Equal(t, troupev1.TurnOutcome_TURN_OUTCOME_AUTH_REQUIRED, turnResult(asked).GetOutcome())
		require.Equal(t, troupev1.Stage_STAGE_INPUT_REQUIRED, asked[len(asked)-1].GetStage())
		require.Equal(t, call.GetAuth().GetAuthId(), turnResult(asked).GetPending()[0].GetAuth().GetAuthId())
		require.Equal(t, session.AuthRequired, rig.state(t, req.Session))

		given := answerRequest("r2", sealedAnswer("1-2-2"))
		given.Session = req.Session
		given.Answers[0].AuthID = "another@research-1"
		on := runToEnd(t, runner, given)
		require.Equal(t, outcomeCompleted, turnResult(on).GetOutcome(), "%v", turnResult(on))
		steps := rig.receivedSteps()
		again := steps[len(steps)-2]
		require.Equal(t, "\x00sealed\xff", string(again.GetAnswers()[0].GetSealed()))
		require.Equal(t, call.GetAuth().GetAuthId(), again.GetAnswers()[0].GetAuthId())
		started := on[0].GetTurnStarted().GetAnswers()[0]
		require.Empty(t, started.GetSealed())
		require.Equal(t, call.GetAuth().GetAuthId(), started.GetAuthId())
		require.NotContains(t, fmt.Sprint(on), "sealed\\xff")
		for _, e := range on {
			if s := e.GetStepStarted(); s != nil && e.GetAgent() == "research" {
				require.Equal(t, instance, e.GetInstanceId())
				require.Contains(t, s.GetChoice().GetReason(), "the credential of an answer names "+instance) // a busy machine may miss a health check of another
			}
		}
	}
}

// If the instance with the key is gone, the turn is not delayed: another instance asks for the credential again.
func TestTurn_SendsACredentialElsewhereWhenItsInstanceIsGone(t *testing.T) {
	rig := newRig(t)
	runner := rig.newRunner(t, "one")
	rig.makeResearchWait(credentialCall(t, "research-9", time.Minute))
	runToEnd(t, runner, textRequest("s1", "r1"))
	rig.makeResearchWait(credentialCall(t, "research-1", time.Minute))
	on := runToEnd(t, runner, answerRequest("r2", sealedAnswer("1-2-2")))
	require.Equal(t, troupev1.TurnOutcome_TURN_OUTCOME_AUTH_REQUIRED, turnResult(on).GetOutcome())
	require.Equal(t, "\x00sealed\xff", string(rig.receivedSteps()[2].GetAnswers()[0].GetSealed()))
}

// Req: LP-37
func TestTurn_DropsALateCredential(t *testing.T) {
	rig := newRig(t)
	runner := rig.newRunner(t, "one")
	rig.makeResearchWait(credentialCall(t, "research-1", -time.Second))
	runToEnd(t, runner, textRequest("s1", "r1"))
	runToEnd(t, runner, answerRequest("r2", sealedAnswer("1-2-2")))
	got := rig.receivedSteps()[2].GetAnswers()[0]
	require.True(t, got.GetLate())
	require.Empty(t, got.GetSealed())
}

func TestRunner_RejectsACredentialForACallThatNeedsNone(t *testing.T) {
	rig := newRig(t)
	runner := rig.newRunner(t, "one")
	rig.makeResearchWait(approvalCall())
	runToEnd(t, runner, textRequest("s1", "r1"))
	err := rejectionError(t, runner, answerRequest("r2", sealedAnswer("1-2-2")))
	require.Equal(t, failure.UserInvalidInput, failure.ModeOf(err))
	require.ErrorContains(t, err, "answers[0].sealed")
}
