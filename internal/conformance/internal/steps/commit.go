package steps

import (
	"strings"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/troupe-dev/troupe/internal/conformance/internal/check"
	"github.com/troupe-dev/troupe/pkg/failure"
	troupev1 "github.com/troupe-dev/troupe/pkg/gen/troupe/v1"
)

func commitChecks() []check.Check {
	return []check.Check{
		{
			ID: "commit/comes-before-the-result", Requirement: "AgentService.ExecuteStep", Run: checkCommitBeforeResult,
			Title: "The result is sent after the memory service has answered the commit, and not before.",
		},
		{
			ID: "commit/equals-the-result", Requirement: "AgentService.ExecuteStep", Run: checkCommitEqualsResult,
			Title: "The result that is sent is the one that was committed, with the sequence that the memory service answered.",
		},
		{
			ID: "commit/passes-the-fence-on", Requirement: "CommitStepRequest", Run: checkCommitCarriesFence,
			Title: "The commit has the session_id, turn_id, epoch and base_sequence of the step, and is sent once.",
		},
		{
			ID: "commit/sends-the-credential", Requirement: "ExecuteStepRequest.credential", Run: checkCommitSendsCredential,
			Title: "The commit sends the credential of its step unchanged and once, as the metadata troupe-turn; a step without a credential sends none.",
		},
		{
			ID: "commit/adds-the-answer", Requirement: "ExecuteStepRequest.routes", Run: checkCommitAddsAnswer,
			Title: "The commit adds the agent's answer to the session, as one message with the agent as its author.",
		},
		{
			ID: "commit/last-step-closes-the-turn", Requirement: "ExecuteStepRequest.last", Run: checkCommitClosesTurn,
			Title: "The commit of the last step closes the turn with COMPLETED; the commit of another step leaves it open.",
		},
		{
			ID: "commit/retried-when-memory-is-unavailable", Requirement: "MemoryService", Run: checkCommitIsRetried,
			Title: "A commit that the memory service answers with UNAVAILABLE is sent again, unchanged, until it succeeds.",
		},
		{
			ID: "commit/fenced-is-final", Requirement: "MemoryService.CommitStep",
			Run:   checkCommitRejectionIsFinal(failure.Fenced, troupev1.FailureMode_FAILURE_MODE_FENCED),
			Title: "A commit that is rejected with FENCED is not sent again; the step fails with FENCED.",
		},
		{
			ID: "commit/turn-not-open-is-final", Requirement: "MemoryService.CommitStep",
			Run: checkCommitRejectionIsFinal(failure.TurnNotOpen,
				troupev1.FailureMode_FAILURE_MODE_TURN_NOT_OPEN),
			Title: "A commit that is rejected with TURN_NOT_OPEN is not sent again; the step fails with TURN_NOT_OPEN.",
		},
		{
			ID: "commit/base-mismatch-is-final", Requirement: "MemoryService.CommitStep",
			Run: checkCommitRejectionIsFinal(failure.BaseMismatch,
				troupev1.FailureMode_FAILURE_MODE_BASE_MISMATCH),
			Title: "A commit that is rejected with BASE_MISMATCH is not sent again; the step fails with BASE_MISMATCH.",
		},
	}
}

func checkCommitBeforeResult(t *check.T) {
	in := t.StartInstance(check.InstanceSpec{})
	hold := make(chan struct{})
	s := in.SendStep(t.Ctx, in.NewRequest("say hello"), check.Session{HoldUntil: hold})
	t.Eventually("a commit", check.AnswerLimit, func() (bool, any) { return len(t.Memory.CommitCalls(s.Req.GetSessionId())) > 0, "none" })
	t.Sleep(200 * time.Millisecond)
	answered := false
	select {
	case <-s.Answered:
		answered = true
	default:
	}
	close(hold)
	t.True(!answered, "the result of a step whose commit is not answered", "none", "one")
	s.RequireSuccess(t, check.AnswerLimit)
}

func checkCommitEqualsResult(t *check.T) {
	in := t.StartInstance(check.InstanceSpec{})
	for _, text := range []string{"say hello", "count 3", "own history"} {
		s := in.StartStep(text)
		sent := proto.CloneOf(s.RequireSuccess(t, check.AnswerLimit).Result())
		stored := proto.CloneOf(t.Memory.StoredCommit(s.Req.GetSessionId()).GetResult())
		t.True(stored != nil, "a step that was answered", "committed", "not committed")
		last := s.Req.GetBaseSequence() + int64(len(t.Memory.StoredCommit(s.Req.GetSessionId()).GetMessages()))
		check.Equal(t, "sequence of the result", last, sent.GetSequence())
		sent.Sequence, stored.Sequence = 0, 0 // unknown before the commit
		t.True(proto.Equal(sent, stored), "the result that was sent", "the one committed, "+stored.String(), sent.String())
	}
}

func checkCommitCarriesFence(t *check.T) {
	in := t.StartInstance(check.InstanceSpec{})
	req := in.NewRequest("say hello")
	req.Epoch, req.BaseSequence = 1<<40, 1<<41 // more than 32 bits
	s := in.SendStep(t.Ctx, req, check.Session{})
	s.RequireSuccess(t, check.AnswerLimit)
	c := s.RequireOneCommit(t)
	check.Equal(t, "session_id of the commit", req.GetSessionId(), c.GetSessionId())
	check.Equal(t, "turn_id of the commit", req.GetTurnId(), c.GetTurnId())
	check.Equal(t, "epoch of the commit", req.GetEpoch(), c.GetEpoch())
	check.Equal(t, "base_sequence of the commit", req.GetBaseSequence(), c.GetBaseSequence())
	check.Equal(t, "step of the commit's result", req.GetStep(), c.GetResult().GetStep())
}

func checkCommitSendsCredential(t *check.T) {
	in := t.StartInstance(check.InstanceSpec{})
	for _, credential := range []string{"e30.one-_~" + strings.Repeat("x", 3000) + ".A", "e30.another.A", ""} {
		req := in.NewRequest("say hello")
		req.Tenant, req.Credential = "acme", credential
		s := in.SendStep(t.Ctx, req, check.Session{RemainingOutages: 1})
		s.RequireSuccess(t, check.AnswerLimit)
		for _, c := range t.Memory.CommitCalls(req.GetSessionId()) { // the second commit is a retry
			if credential == "" {
				check.Equal(t, "credentials of a commit without one", 0, len(c.Credentials))
				continue
			}
			check.Equal(t, "credentials of the commit", 1, len(c.Credentials))
			check.Equal(t, "credential of the commit", credential, c.Credentials[0])
		}
	}
}

func checkCommitAddsAnswer(t *check.T) {
	in := t.StartInstance(check.InstanceSpec{})
	s := in.StartStep("say hello")
	s.RequireSuccess(t, check.AnswerLimit)
	messages := s.RequireOneCommit(t).GetMessages()
	check.Equal(t, "messages of the commit", 1, len(messages))
	check.Equal(t, "role of the message", troupev1.Role_ROLE_ASSISTANT, messages[0].GetRole())
	check.Equal(t, "author of the message", in.MakeResponse.GetAgent(), messages[0].GetAuthor())
	var text strings.Builder
	for _, p := range messages[0].GetParts() {
		text.WriteString(p.GetText())
	}
	check.Equal(t, "text of the message", "hello", text.String())
}

func checkCommitClosesTurn(t *check.T) {
	in := t.StartInstance(check.InstanceSpec{})
	for last, outcome := range map[bool]troupev1.TurnOutcome{
		true: troupev1.TurnOutcome_TURN_OUTCOME_COMPLETED, false: troupev1.TurnOutcome_TURN_OUTCOME_UNSPECIFIED,
	} {
		req := in.NewRequest("say hello")
		req.Last = last
		s := in.SendStep(t.Ctx, req, check.Session{})
		s.RequireSuccess(t, check.AnswerLimit)
		what := "outcome of the commit of a step that is not the last"
		if last {
			what = "outcome of the commit of the last step"
		}
		check.Equal(t, what, outcome, s.RequireOneCommit(t).GetOutcome())
	}
}

func checkCommitIsRetried(t *check.T) {
	in := t.StartInstance(check.InstanceSpec{})
	const outages = 4
	s := in.SendStep(t.Ctx, in.NewRequest("say hello"), check.Session{RemainingOutages: outages})
	check.Equal(t, "answer of a step whose commit was rejected with UNAVAILABLE at first", "hello", s.RequireSuccess(t, 8*time.Second).Text())
	calls := t.Memory.CommitCalls(s.Req.GetSessionId())
	check.Equal(t, "calls of CommitStep with 4 outages", outages+1, len(calls))
	for _, c := range calls {
		t.True(proto.Equal(c.Request, calls[0].Request), "a commit that is sent again", "the same", "another")
	}
}

func checkCommitRejectionIsFinal(mode failure.Mode, told troupev1.FailureMode) func(*check.T) {
	return func(t *check.T) {
		in := t.StartInstance(check.InstanceSpec{})
		s := in.SendStep(t.Ctx, in.NewRequest("say hello"), check.Session{RejectMode: mode})
		o := s.RequireFailure(t, 5*time.Second, told)
		check.Equal(t, "text of a result that failed", "", o.Text())
		t.Sleep(200 * time.Millisecond) // a retry would arrive in this time
		s.RequireOneCommit(t)
		check.Equal(t, "failed_requests", 1, in.Metrics().GetFailedRequests())
		in.RequireState("after it", check.Ready)
	}
}
