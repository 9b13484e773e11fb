package opening

import (
	"cmp"
	"context"
	"slices"
	"time"

	"github.com/troupe-dev/troupe/internal/pendingcall"
	"github.com/troupe-dev/troupe/pkg/agent/local/internal/storage"
	"github.com/troupe-dev/troupe/pkg/execution"
	"github.com/troupe-dev/troupe/pkg/failure"
	"github.com/troupe-dev/troupe/pkg/session"
)

// ApplyAnswers makes t continue the pending calls, if the request has answers to them. It rejects a request with
// neither answers nor text while calls wait (LP-32).
func (o *Opener) ApplyAnswers(ctx context.Context, t *storage.Turn, r Request) error {
	if !r.isSilent() || len(r.Answers) == 0 && len(o.status.Info().Pending) == 0 {
		return nil
	}
	info, err := o.storage.Get(ctx)
	if err != nil {
		return err
	}
	o.status.RefreshWaiting(info)
	if len(r.Answers) == 0 {
		if len(info.Pending) == 0 { // another process has answered them
			return nil
		}
		return o.newInvalidInputError("Continue: calls wait for an answer in session %s; send Answers, or a Text to leave them", o.storage.Ref.Session)
	}
	if info.WaitingTurn == "" {
		return o.newNoWaitingTurnError(ctx, info)
	}
	if err := o.checkWaitingTurn(ctx, info.WaitingTurn); err != nil {
		return err
	}
	answers, err := pendingcall.CheckAnswers(info.Pending, r.Answers, time.Now())
	for i := range answers {
		answers[i].By = cmp.Or(answers[i].By, r.Actor)
	}
	t.Continues, t.Answers = info.WaitingTurn, answers
	return err
}

// newNoWaitingTurnError returns the error for answers that do not fit: either another process works on a turn, or
// no call waits.
func (o *Opener) newNoWaitingTurnError(ctx context.Context, info session.Session) error {
	if info.OpenTurn == "" {
		return o.newNothingWaitsError(nil)
	}
	o.undelivered = info.OpenTurn
	left, err := o.storage.LeaseLeft(ctx, o.undelivered)
	switch {
	case err != nil:
		return err
	case left > 0:
		return o.NewBusyError(o.undelivered, left)
	}
	return o.newNothingWaitsError(nil)
}

// checkWaitingTurn returns an error unless this agent can continue the turn. A local session must have begun it,
// with the same agent.
func (o *Opener) checkWaitingTurn(ctx context.Context, turn string) error {
	found, err := o.storage.Lookup(ctx, o.storage.ClaimRequest(turn, storage.NewTrace()))
	id, steps := o.storage.Ref.Session, found.Turn.Steps
	switch {
	case failure.Is(err, failure.KeyReused):
		return o.newInvalidInputError("Answers: the calls that wait in session %s are of a turn that ran in the mesh; answer them there", id)
	case failure.Is(err, failure.NotFound):
		return o.newNothingWaitsError(err)
	case err == nil && len(steps) > 0 && steps[len(steps)-1].Agent != o.agent:
		return o.newInvalidInputError("Answers: the calls that wait in session %s are of agent %s; open the session with that one", id,
			steps[len(steps)-1].Agent)
	}
	return err
}

// newNothingWaitsError returns the error for answers if no call waits.
func (o *Opener) newNothingWaitsError(cause error) error {
	return o.newInvalidInputError("Answers: no call waits in session %s; it was answered before, or a later turn left it. "+
		"Set Continue to continue the conversation",
		o.storage.Ref.Session).Because(cause)
}

func (o *Opener) newInvalidInputError(format string, args ...any) *failure.Error {
	return failure.Newf(failure.UserInvalidInput, "local.Turn", format, args...).With("session_id", o.storage.Ref.Session)
}

// isRepeated reports whether the answers equal the answers of the turn that this process left open. If so, they
// continue that turn.
func (o *Opener) isRepeated(answers []execution.Answer) bool {
	return len(answers) > 0 && o.unclosedTurn != nil && slices.EqualFunc(answers, o.unclosedTurn.Turn.Answers, func(a, b execution.Answer) bool {
		return a.ID == b.ID && a.Verdict == b.Verdict && a.Text == b.Text
	})
}
