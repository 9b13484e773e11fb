package conformance

import (
	"strings"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/troupe-dev/troupe/pkg/failure"
	troupev1 "github.com/troupe-dev/troupe/pkg/gen/troupe/v1"
)

func commitChecks() []Check {
	return []Check{
		{
			ID: "commit/comes-before-the-result", Requirement: "AgentService.ExecuteStep", run: commitFirst,
			Title: "The result is sent after the memory service has answered the commit, and not before.",
		},
		{
			ID: "commit/equals-the-result", Requirement: "AgentService.ExecuteStep", run: commitEquals,
			Title: "The result that is sent is the one that was committed, with the sequence that the memory service answered.",
		},
		{
			ID: "commit/passes-the-fence-on", Requirement: "CommitStepRequest", run: commitFence,
			Title: "The commit has the session_id, turn_id, epoch and base_sequence of the step, and is made once.",
		},
		{
			ID: "commit/shows-the-credential", Requirement: "ExecuteStepRequest.credential", run: commitCredential,
			Title: "The commit shows the credential of its step as the metadata troupe-turn, as it is and once; a step without one shows none.",
		},
		{
			ID: "commit/adds-the-answer", Requirement: "ExecuteStepRequest.routes", run: commitAdds,
			Title: "The commit adds what the agent said to the session, as one message of which the agent is the author.",
		},
		{
			ID: "commit/last-step-closes-the-turn", Requirement: "ExecuteStepRequest.last", run: commitCloses,
			Title: "The commit of the last step closes the turn with COMPLETED; that of another leaves it open.",
		},
		{
			ID: "commit/tried-again-when-memory-is-away", Requirement: "MemoryService", run: commitRetried,
			Title: "A commit that the memory service answers with UNAVAILABLE is sent again, unchanged, until it is made.",
		},
		{
			ID: "commit/fenced-is-final", Requirement: "MemoryService.CommitStep", run: commitFinal(failure.Fenced, troupev1.FailureMode_FAILURE_MODE_FENCED),
			Title: "A commit that is refused with FENCED is not sent again; the step fails with FENCED.",
		},
		{
			ID: "commit/turn-not-open-is-final", Requirement: "MemoryService.CommitStep", run: commitFinal(failure.TurnNotOpen, troupev1.FailureMode_FAILURE_MODE_TURN_NOT_OPEN),
			Title: "A commit that is refused with TURN_NOT_OPEN is not sent again; the step fails with TURN_NOT_OPEN.",
		},
		{
			ID: "commit/base-mismatch-is-final", Requirement: "MemoryService.CommitStep", run: commitFinal(failure.BaseMismatch, troupev1.FailureMode_FAILURE_MODE_BASE_MISMATCH),
			Title: "A commit that is refused with BASE_MISMATCH is not sent again; the step fails with BASE_MISMATCH.",
		},
	}
}

func commitFirst(t *trial) {
	in := t.ready(spec{})
	hold := make(chan struct{})
	s := in.send(t.ctx, in.request("say hello"), ledger{hold: hold})
	t.until("a commit", soon, func() (bool, any) { return len(t.memory.called(s.req.GetSessionId())) > 0, "none" })
	t.idle(200 * time.Millisecond)
	answered := false
	select {
	case <-s.answered:
		answered = true
	default:
	}
	close(hold)
	t.that(!answered, "the result of a step whose commit is not answered", "none", "one")
	s.succeeds(t, soon)
}

func commitEquals(t *trial) {
	in := t.ready(spec{})
	for _, text := range []string{"say hello", "count 3", "own history"} {
		s := in.begin(text)
		sent := proto.CloneOf(s.succeeds(t, soon).result())
		stored := proto.CloneOf(t.memory.committed(s.req.GetSessionId()).GetResult())
		t.that(stored != nil, "a step that was answered", "committed", "not committed")
		last := s.req.GetBaseSequence() + int64(len(t.memory.committed(s.req.GetSessionId()).GetMessages()))
		equal(t, "sequence of the result", last, sent.GetSequence())
		sent.Sequence, stored.Sequence = 0, 0 // the commit cannot know it
		t.that(proto.Equal(sent, stored), "the result that was sent", "the one committed, "+stored.String(), sent.String())
	}
}

// only demands that a step committed once, and returns what.
func (s *step) only(t *trial) *troupev1.CommitStepRequest {
	calls := t.memory.called(s.req.GetSessionId())
	equal(t, "calls of CommitStep", 1, len(calls))
	return calls[0].request
}

func commitFence(t *trial) {
	in := t.ready(spec{})
	req := in.request("say hello")
	req.Epoch, req.BaseSequence = 1<<40, 1<<41 // more than 32 bits
	s := in.send(t.ctx, req, ledger{})
	s.succeeds(t, soon)
	c := s.only(t)
	equal(t, "session_id of the commit", req.GetSessionId(), c.GetSessionId())
	equal(t, "turn_id of the commit", req.GetTurnId(), c.GetTurnId())
	equal(t, "epoch of the commit", req.GetEpoch(), c.GetEpoch())
	equal(t, "base_sequence of the commit", req.GetBaseSequence(), c.GetBaseSequence())
	equal(t, "step of the commit's result", req.GetStep(), c.GetResult().GetStep())
}

func commitCredential(t *trial) {
	in := t.ready(spec{})
	for _, credential := range []string{"e30.one-_~" + strings.Repeat("x", 3000) + ".A", "e30.another.A", ""} {
		req := in.request("say hello")
		req.Tenant, req.Credential = "acme", credential
		s := in.send(t.ctx, req, ledger{away: 1})
		s.succeeds(t, soon)
		for _, c := range t.memory.called(req.GetSessionId()) { // the second is sent again
			if credential == "" {
				equal(t, "credentials of a commit without one", 0, len(c.shown))
				continue
			}
			equal(t, "credentials of the commit", 1, len(c.shown))
			equal(t, "credential of the commit", credential, c.shown[0])
		}
	}
}

func commitAdds(t *trial) {
	in := t.ready(spec{})
	s := in.begin("say hello")
	s.succeeds(t, soon)
	messages := s.only(t).GetMessages()
	equal(t, "messages of the commit", 1, len(messages))
	equal(t, "role of the message", troupev1.Role_ROLE_ASSISTANT, messages[0].GetRole())
	equal(t, "author of the message", in.made.GetAgent(), messages[0].GetAuthor())
	var text strings.Builder
	for _, p := range messages[0].GetParts() {
		text.WriteString(p.GetText())
	}
	equal(t, "text of the message", "hello", text.String())
}

func commitCloses(t *trial) {
	in := t.ready(spec{})
	for last, outcome := range map[bool]troupev1.TurnOutcome{
		true: troupev1.TurnOutcome_TURN_OUTCOME_COMPLETED, false: troupev1.TurnOutcome_TURN_OUTCOME_UNSPECIFIED,
	} {
		req := in.request("say hello")
		req.Last = last
		s := in.send(t.ctx, req, ledger{})
		s.succeeds(t, soon)
		what := "outcome of the commit of a step that is not the last"
		if last {
			what = "outcome of the commit of the last step"
		}
		equal(t, what, outcome, s.only(t).GetOutcome())
	}
}

func commitRetried(t *trial) {
	in := t.ready(spec{})
	const outages = 4
	s := in.send(t.ctx, in.request("say hello"), ledger{away: outages})
	equal(t, "answer of a step whose commit was refused with UNAVAILABLE at first", "hello", s.succeeds(t, 8*time.Second).text())
	calls := t.memory.called(s.req.GetSessionId())
	equal(t, "calls of CommitStep with 4 outages", outages+1, len(calls))
	for _, c := range calls {
		t.that(proto.Equal(c.request, calls[0].request), "a commit that is sent again", "the same", "another")
	}
}

func commitFinal(mode failure.Mode, told troupev1.FailureMode) func(*trial) {
	return func(t *trial) {
		in := t.ready(spec{})
		s := in.send(t.ctx, in.request("say hello"), ledger{refuse: mode})
		o := s.fails(t, 5*time.Second, told)
		equal(t, "text of a result that failed", "", o.text())
		t.idle(200 * time.Millisecond) // for one that is sent again
		s.only(t)
		equal(t, "failed_requests", 1, in.metrics().GetFailedRequests())
		in.isIn("after it", ready)
	}
}
