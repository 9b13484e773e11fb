package agent

import (
	"cmp"
	"context"
	"slices"
	"time"

	"github.com/troupe-dev/troupe/internal/pendingcall"
	"github.com/troupe-dev/troupe/pkg/conversation"
	"github.com/troupe-dev/troupe/pkg/event"
	"github.com/troupe-dev/troupe/pkg/execution"
	"github.com/troupe-dev/troupe/pkg/failure"
	"github.com/troupe-dev/troupe/pkg/memory"
	"github.com/troupe-dev/troupe/pkg/session"
)

// Pending are the calls of tools that wait for somebody: for a person who allows them, or for
// the program that runs them (LP-16). They are stored, and so they wait also while no process
// runs (LP-10a). A turn with Input.Answers goes on with them. It is what this process knows;
// answers are checked against what is stored.
func (s *Session) Pending() []execution.Pending { return s.Info().Pending }

// waits notes the calls that wait after a turn with the given steps.
func (s *Session) waits(turn string, steps []execution.Result) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.known.WaitingTurn, s.known.Pending = "", nil
	if len(steps) == 0 {
		return
	}
	if last := steps[len(steps)-1]; len(last.Pending) > 0 {
		s.known.WaitingTurn, s.known.Pending = turn, last.Pending
	}
}

// answer makes the episode one that goes on with the calls that wait, if the input has answers
// to them. One that says nothing is refused while calls wait (LP-32).
func (s *Session) answer(ctx context.Context, ep *episode, in Input) error {
	if !in.silent() || len(in.Answers) == 0 && len(s.Pending()) == 0 {
		return nil
	}
	if len(in.Answers) > 0 && s.cfg.NoAutoSave {
		return failure.New(failure.UserInvalidInput, "agent.Turn",
			"Answers: a session with NoAutoSave has no journal to go on with; open it without").With("session_id", s.ref.Session)
	}
	info, err := s.look(ctx)
	if err != nil {
		return err
	}
	switch {
	case len(in.Answers) == 0 && len(info.Pending) == 0: // it was answered elsewhere
		return nil
	case len(in.Answers) == 0:
		return failure.Newf(failure.UserInvalidInput, "agent.Turn",
			"Continue: calls wait for an answer in session %s; send Answers, or a Text to leave them", s.ref.Session).With("session_id", s.ref.Session)
	case info.WaitingTurn == "" && info.OpenTurn != "":
		s.lost = info.OpenTurn
		left, err := s.leaseLeft(ctx, s.lost)
		switch {
		case err != nil:
			return err
		case left > 0:
			return s.busy(s.lost, left)
		}
		return s.nothingWaits(nil)
	case info.WaitingTurn == "":
		return s.nothingWaits(nil)
	}
	if err := s.ours(ctx, info.WaitingTurn); err != nil {
		return err
	}
	answers, err := pendingcall.CheckAnswers(info.Pending, in.Answers, time.Now())
	for i := range answers {
		answers[i].By = cmp.Or(answers[i].By, in.Auth.Actor)
	}
	ep.continues, ep.answers = info.WaitingTurn, answers
	return err
}

// look asks the store which calls wait: others may have answered them.
func (s *Session) look(ctx context.Context) (session.Session, error) {
	info, err := stored(ctx, func(ctx context.Context) (session.Session, error) { return s.cfg.Store.GetSession(ctx, s.ref) })
	if err != nil {
		return info, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.known.WaitingTurn != "" && info.WaitingTurn == "" && s.state == session.InputRequired {
		s.state = session.Ready
	}
	s.known.WaitingTurn, s.known.Pending = info.WaitingTurn, info.Pending
	return info, nil
}

// ours reports whether this agent can go on with a turn: it was one of a Session, and of this
// agent.
func (s *Session) ours(ctx context.Context, turn string) error {
	found, err := stored(ctx, func(ctx context.Context) (memory.Begun, error) {
		b := s.asking(turn, newTrace())
		b.LookupOnly = true
		return s.cfg.Store.BeginTurn(ctx, b)
	})
	wrong := func(format string, args ...any) error {
		return failure.Newf(failure.UserInvalidInput, "agent.Turn", format, args...).With("session_id", s.ref.Session)
	}
	steps := found.Turn.Steps
	switch {
	case failure.Is(err, failure.KeyReused):
		return wrong("Answers: the calls that wait in session %s are not of a turn of a Session; answer them where the turn ran, in the mesh", s.ref.Session)
	case failure.Is(err, failure.NotFound):
		return s.nothingWaits(err)
	case err == nil && len(steps) > 0 && steps[len(steps)-1].Agent != s.agent.Name():
		return wrong("Answers: the calls that wait in session %s are of agent %s; open the session with that one",
			s.ref.Session, steps[len(steps)-1].Agent)
	}
	return err
}

// nothingWaits is why answers are refused to which there is no call.
func (s *Session) nothingWaits(cause error) error {
	return failure.Newf(failure.UserInvalidInput, "agent.Turn",
		"Answers: no call waits in session %s; it was answered before, or a turn went on without. Set Continue to go on", s.ref.Session).
		With("session_id", s.ref.Session).Because(cause)
}

// repeats reports whether the answers are those of the turn that this process left open, so
// that it goes on with that one.
func (s *Session) repeats(answers []execution.Answer) bool {
	return len(answers) > 0 && s.left != nil && slices.EqualFunc(answers, s.left.answers, func(a, b execution.Answer) bool {
		return a.ID == b.ID && a.Verdict == b.Verdict && a.Text == b.Text
	})
}

// tell tells of a turn that was stored with its answer, and of which nobody was told.
func (r *reading) tell(ctx context.Context) {
	s, turn := r.s, r.found
	messages, err := s.read(ctx, max(0, turn.Sequence-memory.MaxWindow))
	if err != nil {
		r.leave("")
		s.refuse(r.yield, err, err)
		return
	}
	done := event.TurnResult{Turn: turn.Number, Reason: event.Natural}
	for _, m := range messages {
		if m.Turn == turn.Number && m.Role != conversation.RoleUser {
			done.Messages = append(done.Messages, m)
		}
	}
	if n := len(turn.Steps); n > 0 {
		done.Result = turn.Steps[n-1]
		done.Result.Step = 1 // what one commit does not take was stored in several
	}
	if u := done.Result.Usage; u != (execution.Usage{}) {
		done.Usage = &u
	}
	switch result := done.Result; {
	case result.MaxIterations:
		done.Reason = event.MaxIterations
	case result.InputRequired:
		done.Reason = event.InputRequired
	case result.Stopped:
		done.Reason = event.Stopped
	}
	s.lost = ""
	r.leave("")
	r.yield(event.Event{Invocation: turn.ID, Sequence: 1, Time: time.Now(), Author: s.agent.Name(), Payload: done}, nil)
}
