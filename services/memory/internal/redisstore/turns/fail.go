package turns

import (
	"context"
	_ "embed"
	"time"

	"github.com/troupe-dev/troupe/internal/wire"
	"github.com/troupe-dev/troupe/internal/wire/memorywire"
	"github.com/troupe-dev/troupe/pkg/conversation"
	"github.com/troupe-dev/troupe/pkg/memory"
	"github.com/troupe-dev/troupe/pkg/session"
	"github.com/troupe-dev/troupe/services/memory/internal/redisstore/db"
	"github.com/troupe-dev/troupe/services/memory/internal/redisstore/journal"
)

//go:embed scripts/fail.lua
var failSource string

var failScript = db.Register("fail", db.TurnSource, failSource)

// FailTurn implements memory.Turns.
func (t *Turns) FailTurn(ctx context.Context, f memory.Fail) (session.Turn, error) {
	const op = "memory.FailTurn"
	if err := f.Check(op); err != nil {
		return session.Turn{}, err
	}
	end, err := t.newTurnEnd(ctx, op, f)
	if err != nil {
		return session.Turn{}, err
	}
	var journals []string
	for _, step := range end.partial.Journals {
		journals = append(journals, db.JournalName(f.TurnID, step))
	}
	args := append([]any{
		f.Epoch, string(f.Outcome), end.failure, string(f.Outcome.SessionState()), Retention.Milliseconds(),
		t.cfg.MaxMessages, t.cfg.MaxBytes, end.partial.Step, end.partial.Body, end.partial.Size,
		end.keepJournals.Milliseconds(), end.partial.Untrusted, db.FormatSteps(end.partial.Journals), end.waiting,
	}, end.results...)
	r, err := t.db.RunScript(ctx, op, f.Ref, failScript, db.TurnKeys(f.Ref, f.TurnID, journals...), args...)
	if err != nil {
		return session.Turn{}, err
	}
	switch h := (memory.Lease{Ref: f.Ref, TurnID: f.TurnID, Epoch: f.Epoch}); r.Status() {
	case "closed":
	case "step_committed":
		return session.Turn{}, db.NewStepCommittedError(op, h, int(db.ParseNumber(r.Text(1))))
	default:
		return session.Turn{}, db.TurnErrorFromReply(op, h, r)
	}
	turn, err := decodeTurn(f.TurnID, r.Hash(1))
	if err != nil {
		return session.Turn{}, db.NewUnreadableError(op, err)
	}
	return turn, nil
}

// turnEnd is what FailTurn stores.
type turnEnd struct {
	failure      []byte
	partial      journal.PartialReply
	keepJournals time.Duration
	waiting      string // steps whose calls wait, as <turn>:<step>,<step> (empty means none)
	results      []any  // steps and results that no commit has stored
}

// newTurnEnd returns what a call of FailTurn stores. A turn whose calls wait has no unfinished reply, and keeps the
// journals of their steps.
func (t *Turns) newTurnEnd(ctx context.Context, op string, f memory.Fail) (end turnEnd, err error) {
	if f.Failure != nil {
		if end.failure, err = db.Encoding.Marshal(memorywire.FailToProto(f).GetFailure()); err != nil {
			return end, db.NewUnencodableError(op, err)
		}
	}
	if !f.Outcome.NeedsInput() {
		end.keepJournals = t.journal.RetentionAfterTurn(f.Outcome)
		end.partial, err = t.journal.ReadPartialReply(ctx, op, f.Ref, f.TurnID)
		return end, err
	}
	end.keepJournals, end.partial.Body = Retention, []byte{}
	for _, r := range f.Results {
		result, err := db.Encoding.Marshal(wire.ResultToProto(r))
		if err != nil {
			return end, db.NewUnencodableError(op, err)
		}
		end.results = append(end.results, r.Step, result)
		if len(r.Pending) > 0 {
			end.partial.Journals = append(end.partial.Journals, r.Step)
		}
		end.partial.Untrusted = conversation.MostRestrictiveSource(end.partial.Untrusted, r.Untrusted)
	}
	end.waiting = f.TurnID + ":" + db.FormatSteps(end.partial.Journals)
	return end, nil
}
