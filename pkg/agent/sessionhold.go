package agent

import (
	"context"
	"errors"
	"time"

	"github.com/troupe-dev/troupe/pkg/failure"
	"github.com/troupe-dev/troupe/pkg/memory"
	"github.com/troupe-dev/troupe/pkg/session"
)

// begin opens a turn in the store, or takes up the one that was lost. It may find that one
// closed, with an answer of which nobody was told.
func (s *Session) begin(ctx context.Context, ep *episode, in Input) (memory.Begun, error) {
	if in.Continue || s.repeats(in.Answers) {
		if begun, ok, err := s.resume(ctx, ep); ok || err != nil {
			return begun, err
		}
	}
	if err := s.settle(ctx); err != nil {
		return memory.Begun{}, err
	}
	if err := s.answer(ctx, ep, in); err != nil {
		return memory.Begun{}, err
	}
	begun, err := stored(ctx, func(ctx context.Context) (memory.Begun, error) { return s.cfg.Store.BeginTurn(ctx, s.beginning(ep)) })
	switch {
	case err == nil:
		s.lost, ep.number = "", begun.Turn.Number
		s.waits("", nil) // no more
	case failure.Is(err, failure.SessionBusy):
		err = s.elsewhere(ctx, err)
	case failure.Is(err, failure.TurnNotOpen):
		err = s.nothingWaits(err)
	case unsure(err):
		s.doubt(ep, err)
	}
	return begun, err
}

// doubt remembers a turn of which nobody knows whether this process has it.
func (s *Session) doubt(ep *episode, why error) {
	ep.fails(session.OutcomeCancelled, asFailure(why))
	s.left = &scribe{episode: ep}
}

// resume takes up a turn that is open and that nobody works on: one of this process, or one
// of a process that was lost. The agent goes through it again; what the journal has does not
// happen again. One that has an answer is found as it is stored. It is false when there is no
// such turn.
func (s *Session) resume(ctx context.Context, ep *episode) (memory.Begun, bool, error) {
	var b memory.Begin
	switch {
	case s.left != nil:
		b = s.beginning(s.left.episode)
		b.LostEpoch = s.left.hold.Epoch
	case s.lost != "":
		b = s.asking(s.lost, ep.trace)
	default:
		return memory.Begun{}, false, nil
	}
	begun, err := stored(ctx, func(ctx context.Context) (memory.Begun, error) { return s.cfg.Store.BeginTurn(ctx, b) })
	switch {
	case failure.Is(err, failure.SessionBusy):
		return begun, false, s.elsewhere(ctx, err)
	case unsure(err):
		s.doubt(&episode{id: b.TurnID, trace: b.TraceID, said: b.Message, continues: b.Continues, answers: b.Answers}, err)
		return begun, false, err
	case failure.Is(err, failure.TurnNotOpen):
		s.left = nil
		return begun, false, s.nothingWaits(err)
	case err != nil && !failure.Is(err, failure.NotFound, failure.KeyReused):
		return begun, false, err
	case begun.Status == memory.StatusOpen:
		return begun, false, s.busy(b.TurnID, begun.LeaseLeft)
	}
	s.left, s.lost = nil, ""
	if begun.Status == memory.StatusClosed {
		s.ended(begun.Turn)
		return begun, s.lost != "", nil
	}
	if begun.Status != memory.StatusBegun { // it is not one of a Session
		return begun, false, nil
	}
	if len(begun.Turn.Steps) > 0 { // it was lost while it was stored, and its journal is gone
		return begun, false, s.fail(ctx, begun)
	}
	ep.id, ep.trace, ep.number = b.TurnID, b.TraceID, begun.Turn.Number
	ep.continues, ep.answers = begun.Turn.Continues, begun.Turn.Answers
	s.waits("", nil)
	return begun, true, nil
}

// settle closes the turn that this process left open because the store did not answer.
func (s *Session) settle(ctx context.Context) error {
	w := s.left
	if w == nil {
		return nil
	}
	if w.hold.Epoch == 0 { // nobody knows whether it began
		begun, err := stored(ctx, func(ctx context.Context) (memory.Begun, error) {
			b := s.beginning(w.episode)
			b.LookupOnly = true
			return s.cfg.Store.BeginTurn(ctx, b)
		})
		if err != nil && !failure.Is(err, failure.NotFound, failure.SessionDeleted) {
			return err
		}
		if begun.Status != memory.StatusBegun {
			s.left = nil
			if begun.Status == memory.StatusOpen {
				s.lost = w.id
			}
			if begun.Status == memory.StatusClosed {
				s.ended(begun.Turn)
			}
			return nil
		}
		w = s.scribe(w.episode, begun)
	}
	turn, err := w.write(ctx)
	if err != nil && unsure(err) {
		return err
	}
	s.left = nil
	if err == nil {
		s.ended(turn)
	} else {
		s.wrote(w.number, w.base)
	}
	return nil
}

// ended notes how a turn ended that was lost. One with an answer is still to be told.
func (s *Session) ended(turn session.Turn) {
	s.wrote(turn.Number, turn.Sequence)
	s.waits(turn.ID, turn.Steps)
	if answered(turn.Outcome) {
		s.lost = turn.ID
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.state = turn.Outcome.After()
}

// elsewhere says more of a session that is busy with a turn of another process.
func (s *Session) elsewhere(ctx context.Context, busy error) error {
	e, ok := errors.AsType[*failure.Error](busy)
	if !ok || e.Facts["turn_id"] == "" {
		return busy
	}
	s.lost = e.Facts["turn_id"]
	left, err := s.leaseLeft(ctx, s.lost)
	if err != nil {
		return busy
	}
	return s.busy(s.lost, left)
}

// busy is why a session takes no turn whose turn another process works on.
func (s *Session) busy(turn string, left time.Duration) error {
	left = left.Round(time.Millisecond)
	return failure.Newf(failure.SessionBusy, "agent.Turn",
		"session %s works on another turn elsewhere; wait until it ends. If its process was lost, it makes room in %v", s.ref.Session, left).
		With("session_id", s.ref.Session).With("turn_id", turn).With("lease_left", left.String())
}

// giveUp closes the turn that keeps the session busy, if its process was lost.
func (s *Session) giveUp(ctx context.Context, busy error) error {
	e, ok := errors.AsType[*failure.Error](busy)
	if !ok || e.Facts["turn_id"] == "" {
		return busy
	}
	begun, err := stored(ctx, func(ctx context.Context) (memory.Begun, error) {
		return s.cfg.Store.BeginTurn(ctx, s.asking(e.Facts["turn_id"], newTrace()))
	})
	switch {
	case failure.Is(err, failure.KeyReused):
		return busy // of something else than a Session
	case err != nil:
		return err
	case begun.Status == memory.StatusOpen:
		return s.busy(begun.Turn.ID, begun.LeaseLeft)
	case begun.Status == memory.StatusClosed:
		return nil
	}
	s.lost = ""
	return s.fail(ctx, begun)
}

// fail closes a turn of a process that was lost.
func (s *Session) fail(ctx context.Context, begun memory.Begun) error {
	turn, err := stored(ctx, func(ctx context.Context) (session.Turn, error) {
		return s.cfg.Store.FailTurn(ctx, memory.Fail{
			Ref: s.ref, TurnID: begun.Turn.ID, Epoch: begun.Turn.Epoch, Outcome: session.OutcomeFailed,
			Failure: failure.New(failure.SystemTimeout, "agent.Turn", "the turn was given up: its process was lost before it had an answer"),
		})
	})
	if err == nil {
		s.ended(turn)
	}
	return err
}
