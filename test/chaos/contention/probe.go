package contention

import (
	"context"
	"time"

	"github.com/troupe-dev/troupe/pkg/conversation"
	"github.com/troupe-dev/troupe/pkg/failure"
	"github.com/troupe-dev/troupe/pkg/memory"
)

// playProbes checks which replies other callers receive while a turn is open.
func (r *sessionRun) playProbes(ctx context.Context, b memory.Begin, begun memory.BeginResult) error {
	again, err := r.beginTurn(ctx, b)
	if err != nil || again.Status != memory.StatusBegun || again.Turn.Epoch != begun.Turn.Epoch && !isLaterGeneration(begun.Turn, again.Turn) {
		return unexpectedAnswerError(err, "the holder's own call again is %s of epoch %d", again.Status, again.Turn.Epoch)
	}
	begun = again
	stranger := b
	stranger.TraceID = newTraceID()
	if found, err := r.beginTurn(ctx, stranger); err != nil || found.Status != memory.StatusOpen {
		return unexpectedAnswerError(err, "a stranger's call finds the turn %s", found.Status)
	}
	other := stranger
	other.Fingerprint = "g"
	if _, err := r.beginTurn(ctx, other); !failure.Is(err, failure.KeyReused) {
		return unexpectedAnswerError(err, "another request under the turn's id, want key_reused")
	}
	r.countReply(KeyReused)
	rival := stranger
	rival.TurnID += "-rival"
	rival.Message = conversation.User(rival.TurnID)
	if _, err := r.beginTurn(ctx, rival); !failure.Is(err, failure.SessionBusy) {
		return unexpectedAnswerError(err, "another turn of the session, want session_busy")
	}
	r.countReply(Busy)
	wrong := r.newCommit(begun, "wrong")
	wrong.Base += 5
	if accepted, err := r.commit(ctx, wrong); accepted || !failure.Is(err, failure.BaseMismatch) {
		return unexpectedAnswerError(err, "a commit on messages that are not there, want base_mismatch")
	}
	return r.mustCommit(ctx, begun, "a")
}

// playRelease lets the holder release its lease. Another caller then takes the turn over.
func (r *sessionRun) playRelease(ctx context.Context, b memory.Begin, begun memory.BeginResult) error {
	_, n, err := callUntilAnswered(ctx, r.Run, func(ctx context.Context, s memory.Store) (struct{}, error) {
		return struct{}{}, s.ReleaseTurn(ctx, leaseFromTurn(b, begun.Turn.Epoch))
	})
	if err != nil {
		return unexpectedAnswerError(err, "release, try %d", n)
	}
	return r.takeOverWithAnotherTrace(ctx, b, begun)
}

// playExpiry lets the holder's lease expire. Then another caller takes over the turn, or another turn of the
// session evicts it.
func (r *sessionRun) playExpiry(ctx context.Context, b memory.Begin, begun memory.BeginResult) error {
	over := time.NewTimer(shortLeaseTTL + 50*time.Millisecond)
	defer over.Stop()
	select {
	case <-over.C:
	case <-ctx.Done():
		return ctx.Err()
	}
	b.LeaseTTL = leaseTTL
	if r.rng.IntN(2) == 0 {
		return r.takeOverWithAnotherTrace(ctx, b, begun)
	}
	next := b
	next.TurnID, next.TraceID = b.TurnID+"-next", newTraceID()
	next.Message = conversation.User(next.TurnID)
	second, err := r.beginTurn(ctx, next)
	if err != nil || second.Status != memory.StatusBegun {
		return unexpectedAnswerError(err, "a turn behind one whose lease ran out is %s", second.Status)
	}
	if accepted, err := r.commit(ctx, r.newCommit(begun, "zombie")); accepted || !failure.Is(err, failure.TurnNotOpen, failure.Fenced) {
		return unexpectedAnswerError(err, "a commit of a turn that made room, want turn_not_open")
	}
	return r.mustCommit(ctx, second, "a")
}

// takeOverWithAnotherTrace takes over a turn without a lease, under a different trace, and commits it. A late
// commit of the former holder must be fenced.
func (r *sessionRun) takeOverWithAnotherTrace(ctx context.Context, b memory.Begin, begun memory.BeginResult) error {
	b.TraceID = newTraceID()
	second, err := r.beginTurn(ctx, b)
	if err != nil || second.Status != memory.StatusBegun || second.Turn.Attempt != begun.Turn.Attempt+1 && !isLaterGeneration(begun.Turn, second.Turn) {
		return unexpectedAnswerError(err, "a turn without a lease is %s for a stranger, attempt %d", second.Status, second.Turn.Attempt)
	}
	if accepted, err := r.commit(ctx, r.newCommit(begun, "zombie")); accepted || !failure.Is(err, failure.Fenced) {
		return unexpectedAnswerError(err, "a late commit of the holder before, want fenced")
	}
	return r.mustCommit(ctx, second, "b")
}
