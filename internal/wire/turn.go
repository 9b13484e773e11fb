package wire

import (
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/troupe-dev/troupe/internal/grpcfailure"
	troupev1 "github.com/troupe-dev/troupe/pkg/gen/troupe/v1"
	"github.com/troupe-dev/troupe/pkg/memory"
	"github.com/troupe-dev/troupe/pkg/session"
)

var outcomes = enum[session.Outcome, troupev1.TurnOutcome]{
	session.OutcomeOpen:          troupev1.TurnOutcome_TURN_OUTCOME_UNSPECIFIED,
	session.OutcomeCompleted:     troupev1.TurnOutcome_TURN_OUTCOME_COMPLETED,
	session.OutcomeFailed:        troupev1.TurnOutcome_TURN_OUTCOME_FAILED,
	session.OutcomeCancelled:     troupev1.TurnOutcome_TURN_OUTCOME_CANCELLED,
	session.OutcomeInputRequired: troupev1.TurnOutcome_TURN_OUTCOME_INPUT_REQUIRED,
	session.OutcomeAuthRequired:  troupev1.TurnOutcome_TURN_OUTCOME_AUTH_REQUIRED,
}

var founds = enum[memory.Found, troupev1.BeginOutcome]{
	memory.FoundBegun:  troupev1.BeginOutcome_BEGIN_OUTCOME_BEGUN,
	memory.FoundOpen:   troupev1.BeginOutcome_BEGIN_OUTCOME_OPEN,
	memory.FoundClosed: troupev1.BeginOutcome_BEGIN_OUTCOME_CLOSED,
}

// OutcomeToProto is how a turn ended.
func OutcomeToProto(o session.Outcome) troupev1.TurnOutcome { return outcomes.toProto(o) }

// OutcomeFromProto is the inverse of OutcomeToProto.
func OutcomeFromProto(o troupev1.TurnOutcome) session.Outcome { return outcomes.fromProto(o) }

// TurnToProto is t as it is sent.
func TurnToProto(t session.Turn) *troupev1.Turn {
	return &troupev1.Turn{
		TurnId:       t.ID,
		TraceId:      t.Trace,
		Number:       int32(t.Number),
		Outcome:      OutcomeToProto(t.Outcome),
		Epoch:        t.Epoch,
		Attempt:      int32(t.Attempt),
		Steps:        each(t.Steps, ResultToProto),
		LastSequence: t.Sequence,
		Failure:      failureToProto(t.Failure),

		ContinuesTurnId: t.Continues, Answers: AnswersToProto(t.Answers), OriginTurnId: t.Origin,
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
		Steps:    each(t.GetSteps(), ResultFromProto),
		Failure:  grpcfailure.FromProto(t.GetFailure()),
		Sequence: t.GetLastSequence(),

		Continues: t.GetContinuesTurnId(), Answers: AnswersFromProto(t.GetAnswers()), Origin: t.GetOriginTurnId(),
	}
}

// BeginToProto is the request for b.
func BeginToProto(b memory.Begin) *troupev1.BeginTurnRequest {
	var said *troupev1.Message
	for _, m := range b.Said() {
		said = MessageToProto(m)
	}
	return &troupev1.BeginTurnRequest{
		SessionId:    b.Ref.Session,
		TurnId:       b.TurnID,
		TraceId:      b.TraceID,
		Fingerprint:  b.Fingerprint,
		Message:      said,
		Lease:        durationpb.New(b.Lease),
		Reserve:      durationpb.New(b.Reserve),
		HistoryLimit: int32(b.Window),
		KnownOnly:    b.KnownOnly,

		UserId: b.User, HistoryTokens: int32(b.WindowTokens), LostEpoch: b.LostEpoch,
		ContinuesTurnId: b.Continues, Answers: AnswersToProto(b.Answers),
		ResumesTurnId: b.Resumes, Inherited: each(b.Inherited, ResultToProto), Copy: copyToProto(b.Copy),
	}
}

// BeginFromProto is what a caller of the tenant asks for.
func BeginFromProto(tenant string, r *troupev1.BeginTurnRequest) memory.Begin {
	return memory.Begin{
		Ref:         session.Ref{Tenant: tenant, Session: r.GetSessionId()},
		TurnID:      r.GetTurnId(),
		TraceID:     r.GetTraceId(),
		Fingerprint: r.GetFingerprint(),
		Message:     MessageFromProto(r.GetMessage()),
		Lease:       r.GetLease().AsDuration(),
		Reserve:     r.GetReserve().AsDuration(),
		Window:      int(r.GetHistoryLimit()),
		KnownOnly:   r.GetKnownOnly(),

		User: r.GetUserId(), WindowTokens: int(r.GetHistoryTokens()), LostEpoch: r.GetLostEpoch(),
		Continues: r.GetContinuesTurnId(), Answers: AnswersFromProto(r.GetAnswers()),
		Resumes: r.GetResumesTurnId(), Inherited: each(r.GetInherited(), ResultFromProto), Copy: copyFromProto(r.GetCopy()),
	}
}

func copyToProto(c *memory.Copy) *troupev1.SessionCopy {
	if c == nil {
		return nil
	}
	return &troupev1.SessionCopy{History: MessagesToProto(c.History), Said: MessagesToProto(c.Said), State: valuesToProto(c.State)}
}

func copyFromProto(c *troupev1.SessionCopy) *memory.Copy {
	if c == nil {
		return nil
	}
	return &memory.Copy{History: MessagesFromProto(c.GetHistory()), Said: MessagesFromProto(c.GetSaid()), State: valuesFromProto(c.GetState())}
}

// BegunToProto is the answer b.
func BegunToProto(b memory.Begun) *troupev1.BeginTurnResponse {
	p := &troupev1.BeginTurnResponse{
		Outcome: founds.toProto(b.Found),
		Turn:    TurnToProto(b.Turn),
		History: MessagesToProto(b.History),

		Recorded: b.Recorded,
	}
	if b.LeaseLeft != 0 {
		p.LeaseLeft = durationpb.New(b.LeaseLeft)
	}
	return p
}

// BegunFromProto is the inverse of BegunToProto.
func BegunFromProto(r *troupev1.BeginTurnResponse) memory.Begun {
	return memory.Begun{
		Found:     founds.fromProto(r.GetOutcome()),
		Turn:      TurnFromProto(r.GetTurn()),
		History:   MessagesFromProto(r.GetHistory()),
		LeaseLeft: r.GetLeaseLeft().AsDuration(),
		Recorded:  r.GetRecorded(),
	}
}

// CommitToProto is the request for c.
func CommitToProto(c memory.Commit) *troupev1.CommitStepRequest {
	return &troupev1.CommitStepRequest{
		SessionId:    c.Ref.Session,
		TurnId:       c.TurnID,
		Epoch:        c.Epoch,
		BaseSequence: c.Base,
		Messages:     MessagesToProto(c.Messages),
		Result:       ResultToProto(c.Result),
		Outcome:      OutcomeToProto(c.Outcome),
		State:        valuesToProto(c.State),
		Journal:      EntriesToProto(c.Journal),
	}
}

// CommitFromProto is what a caller of the tenant asks for.
func CommitFromProto(tenant string, r *troupev1.CommitStepRequest) memory.Commit {
	return memory.Commit{
		Ref:      session.Ref{Tenant: tenant, Session: r.GetSessionId()},
		TurnID:   r.GetTurnId(),
		Epoch:    r.GetEpoch(),
		Base:     r.GetBaseSequence(),
		Messages: MessagesFromProto(r.GetMessages()),
		Result:   ResultFromProto(r.GetResult()),
		Outcome:  OutcomeFromProto(r.GetOutcome()),
		State:    valuesFromProto(r.GetState()),
		Journal:  EntriesFromProto(r.GetJournal()),
	}
}

// FailToProto is the request for f.
func FailToProto(f memory.Fail) *troupev1.FailTurnRequest {
	return &troupev1.FailTurnRequest{
		SessionId: f.Ref.Session,
		TurnId:    f.TurnID,
		Epoch:     f.Epoch,
		Outcome:   OutcomeToProto(f.Outcome),
		Failure:   failureToProto(f.Failure),
	}
}

// FailFromProto is what a caller of the tenant asks for.
func FailFromProto(tenant string, r *troupev1.FailTurnRequest) memory.Fail {
	return memory.Fail{
		Ref:     session.Ref{Tenant: tenant, Session: r.GetSessionId()},
		TurnID:  r.GetTurnId(),
		Epoch:   r.GetEpoch(),
		Outcome: OutcomeFromProto(r.GetOutcome()),
		Failure: grpcfailure.FromProto(r.GetFailure()),
	}
}
