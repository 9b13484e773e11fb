package memorywire

import (
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/troupe-dev/troupe/internal/grpcfailure"
	"github.com/troupe-dev/troupe/internal/wire"
	"github.com/troupe-dev/troupe/internal/wire/convert"
	troupev1 "github.com/troupe-dev/troupe/pkg/gen/troupe/v1"
	"github.com/troupe-dev/troupe/pkg/memory"
	"github.com/troupe-dev/troupe/pkg/session"
)

var turnOutcomes = convert.Enum[session.Outcome, troupev1.TurnOutcome]{
	session.OutcomeOpen:          troupev1.TurnOutcome_TURN_OUTCOME_UNSPECIFIED,
	session.OutcomeCompleted:     troupev1.TurnOutcome_TURN_OUTCOME_COMPLETED,
	session.OutcomeFailed:        troupev1.TurnOutcome_TURN_OUTCOME_FAILED,
	session.OutcomeCancelled:     troupev1.TurnOutcome_TURN_OUTCOME_CANCELLED,
	session.OutcomeInputRequired: troupev1.TurnOutcome_TURN_OUTCOME_INPUT_REQUIRED,
	session.OutcomeAuthRequired:  troupev1.TurnOutcome_TURN_OUTCOME_AUTH_REQUIRED,
}

var beginStatuses = convert.Enum[memory.BeginStatus, troupev1.BeginOutcome]{
	memory.StatusBegun:  troupev1.BeginOutcome_BEGIN_OUTCOME_BEGUN,
	memory.StatusOpen:   troupev1.BeginOutcome_BEGIN_OUTCOME_OPEN,
	memory.StatusClosed: troupev1.BeginOutcome_BEGIN_OUTCOME_CLOSED,
}

// OutcomeToProto converts the outcome of a turn.
func OutcomeToProto(o session.Outcome) troupev1.TurnOutcome { return turnOutcomes.ToProto(o) }

// OutcomeFromProto is the inverse of OutcomeToProto.
func OutcomeFromProto(o troupev1.TurnOutcome) session.Outcome { return turnOutcomes.FromProto(o) }

// TurnToProto converts a turn.
func TurnToProto(t session.Turn) *troupev1.Turn {
	return &troupev1.Turn{
		TurnId:       t.ID,
		TraceId:      t.Trace,
		Number:       int32(t.Number),
		Outcome:      OutcomeToProto(t.Outcome),
		Epoch:        t.Epoch,
		Attempt:      int32(t.Attempt),
		Steps:        convert.All(t.Steps, wire.ResultToProto),
		LastSequence: t.Sequence,
		Failure:      wire.FailureToProto(t.Failure),

		ContinuesTurnId: t.Continues, Answers: wire.AnswersToProto(t.Answers), OriginTurnId: t.OriginTurnID,
	}
}

// TurnFromProto is the inverse of TurnToProto.
func TurnFromProto(t *troupev1.Turn) session.Turn {
	return session.Turn{
		ID:       t.GetTurnId(),
		Trace:    t.GetTraceId(),
		Number:   int(t.GetNumber()),
		Outcome:  OutcomeFromProto(t.GetOutcome()),
		Epoch:    t.GetEpoch(),
		Attempt:  int(t.GetAttempt()),
		Steps:    convert.All(t.GetSteps(), wire.ResultFromProto),
		Failure:  grpcfailure.FromProto(t.GetFailure()),
		Sequence: t.GetLastSequence(),

		Continues: t.GetContinuesTurnId(), Answers: wire.AnswersFromProto(t.GetAnswers()), OriginTurnID: t.GetOriginTurnId(),
	}
}

// BeginToProto converts the parameters of BeginTurn to a request.
func BeginToProto(b memory.Begin) *troupev1.BeginTurnRequest {
	var said *troupev1.Message
	for _, m := range b.UserMessages() {
		said = wire.MessageToProto(m)
	}
	return &troupev1.BeginTurnRequest{
		SessionId:    b.Ref.Session,
		TurnId:       b.TurnID,
		TraceId:      b.TraceID,
		Fingerprint:  b.Fingerprint,
		Message:      said,
		Lease:        durationpb.New(b.LeaseTTL),
		Reserve:      durationpb.New(b.TakeoverGrace),
		HistoryLimit: int32(b.Window),
		KnownOnly:    b.LookupOnly,

		UserId: b.User, HistoryTokens: int32(b.WindowTokens), LostEpoch: b.LostEpoch,
		ContinuesTurnId: b.Predecessor.Continues, Answers: wire.AnswersToProto(b.Predecessor.Answers),
		ResumesTurnId: b.Predecessor.Resumes, Inherited: convert.All(b.Predecessor.Inherited, wire.ResultToProto), Copy: copyToProto(b.Predecessor.Copy),
	}
}

// BeginFromProto converts a request to the parameters of BeginTurn, in the caller's tenant.
func BeginFromProto(tenant string, r *troupev1.BeginTurnRequest) memory.Begin {
	return memory.Begin{
		Ref:           session.Ref{Tenant: tenant, Session: r.GetSessionId()},
		TurnID:        r.GetTurnId(),
		TraceID:       r.GetTraceId(),
		Fingerprint:   r.GetFingerprint(),
		Message:       wire.MessageFromProto(r.GetMessage()),
		LeaseTTL:      r.GetLease().AsDuration(),
		TakeoverGrace: r.GetReserve().AsDuration(),
		Window:        int(r.GetHistoryLimit()),
		LookupOnly:    r.GetKnownOnly(),

		User: r.GetUserId(), WindowTokens: int(r.GetHistoryTokens()), LostEpoch: r.GetLostEpoch(),
		Predecessor: memory.Predecessor{
			Continues: r.GetContinuesTurnId(), Answers: wire.AnswersFromProto(r.GetAnswers()),
			Resumes: r.GetResumesTurnId(), Inherited: convert.All(r.GetInherited(), wire.ResultFromProto), Copy: copyFromProto(r.GetCopy()),
		},
	}
}

func copyToProto(c *memory.Copy) *troupev1.SessionCopy {
	if c == nil {
		return nil
	}
	return &troupev1.SessionCopy{
		History: wire.MessagesToProto(c.History), StepMessages: wire.MessagesToProto(c.StepMessages), State: valuesToProto(c.State),
		Rounds: agentRoundsToProto(c.Rounds),
	}
}

func copyFromProto(c *troupev1.SessionCopy) *memory.Copy {
	if c == nil {
		return nil
	}
	return &memory.Copy{
		History: wire.MessagesFromProto(c.GetHistory()), StepMessages: wire.MessagesFromProto(c.GetStepMessages()),
		State: valuesFromProto(c.GetState()), Rounds: agentRoundsFromProto(c.GetRounds()),
	}
}

// BegunToProto converts the result of BeginTurn.
func BegunToProto(b memory.BeginResult) *troupev1.BeginTurnResponse {
	p := &troupev1.BeginTurnResponse{
		Outcome: beginStatuses.ToProto(b.Status),
		Turn:    TurnToProto(b.Turn),
		History: wire.MessagesToProto(b.History),

		Recorded: b.KeepsJournals,
		Agents:   b.Agents,

		Settings: SettingsToProto(b.Settings), Messages: b.Messages, Removed: b.Removed,
	}
	if b.LeaseLeft != 0 {
		p.LeaseLeft = durationpb.New(b.LeaseLeft)
	}
	return p
}

// BegunFromProto is the inverse of BegunToProto.
func BegunFromProto(r *troupev1.BeginTurnResponse) memory.BeginResult {
	return memory.BeginResult{
		Status:        beginStatuses.FromProto(r.GetOutcome()),
		Turn:          TurnFromProto(r.GetTurn()),
		History:       wire.MessagesFromProto(r.GetHistory()),
		LeaseLeft:     r.GetLeaseLeft().AsDuration(),
		KeepsJournals: r.GetRecorded(),
		Agents:        r.GetAgents(),

		Settings: SettingsFromProto(r.GetSettings()), Messages: r.GetMessages(), Removed: r.GetRemoved(),
	}
}

// CommitToProto converts a commit to a request.
func CommitToProto(c memory.Commit) *troupev1.CommitStepRequest {
	return &troupev1.CommitStepRequest{
		SessionId:    c.Ref.Session,
		TurnId:       c.TurnID,
		Epoch:        c.Epoch,
		BaseSequence: c.Base,
		Messages:     wire.MessagesToProto(c.Messages),
		Result:       wire.ResultToProto(c.Result),
		Outcome:      OutcomeToProto(c.Outcome),
		State:        valuesToProto(c.State),
		Expected:     c.Expected,
		Journal:      wire.EntriesToProto(c.Journal),
		Rounds:       RoundsToProto(c.Rounds),
	}
}

// CommitFromProto converts a request to a commit in the caller's tenant.
func CommitFromProto(tenant string, r *troupev1.CommitStepRequest) memory.Commit {
	return memory.Commit{
		Ref:      session.Ref{Tenant: tenant, Session: r.GetSessionId()},
		TurnID:   r.GetTurnId(),
		Epoch:    r.GetEpoch(),
		Base:     r.GetBaseSequence(),
		Messages: wire.MessagesFromProto(r.GetMessages()),
		Result:   wire.ResultFromProto(r.GetResult()),
		Outcome:  OutcomeFromProto(r.GetOutcome()),
		State:    valuesFromProto(r.GetState()),
		Expected: r.GetExpected(),
		Journal:  wire.EntriesFromProto(r.GetJournal()),
		Rounds:   RoundsFromProto(r.GetRounds()),
	}
}

// FailToProto converts the parameters of FailTurn to a request.
func FailToProto(f memory.Fail) *troupev1.FailTurnRequest {
	return &troupev1.FailTurnRequest{
		SessionId: f.Ref.Session,
		TurnId:    f.TurnID,
		Epoch:     f.Epoch,
		Outcome:   OutcomeToProto(f.Outcome),
		Failure:   wire.FailureToProto(f.Failure),
		Results:   convert.All(f.Results, wire.ResultToProto),
	}
}

// FailFromProto converts a request to the parameters of FailTurn, in the caller's tenant.
func FailFromProto(tenant string, r *troupev1.FailTurnRequest) memory.Fail {
	return memory.Fail{
		Ref:     session.Ref{Tenant: tenant, Session: r.GetSessionId()},
		TurnID:  r.GetTurnId(),
		Epoch:   r.GetEpoch(),
		Outcome: OutcomeFromProto(r.GetOutcome()),
		Failure: grpcfailure.FromProto(r.GetFailure()),
		Results: convert.All(r.GetResults(), wire.ResultFromProto),
	}
}
