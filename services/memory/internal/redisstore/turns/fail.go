package turns

import (
	"context"
	_ "embed"

	"github.com/troupe-dev/troupe/internal/wire/memorywire"
	"github.com/troupe-dev/troupe/pkg/memory"
	"github.com/troupe-dev/troupe/pkg/session"
	"github.com/troupe-dev/troupe/services/memory/internal/redisstore/db"
)

//go:embed scripts/fail.lua
var failSource string

var failScript = db.Register("fail", db.TurnSource, failSource)

// FailTurn implements memory.Turns.
func (t *Turns) FailTurn(ctx context.Context, f memory.Fail) (session.Turn, error) {
	const op = "memory.FailTurn"
	why, err := db.Encoding.Marshal(memorywire.FailToProto(f).GetFailure())
	if err != nil {
		return session.Turn{}, db.NewUnencodableError(op, err)
	}
	partial, err := t.journal.ReadPartialReply(ctx, op, f.Ref, f.TurnID)
	if err != nil {
		return session.Turn{}, err
	}
	r, err := t.db.RunScript(ctx, op, f.Ref, failScript, db.TurnKeys(f.Ref, f.TurnID, db.JournalName(f.TurnID, partial.Step)),
		f.Epoch, string(f.Outcome), why, string(f.Outcome.SessionState()), Retention.Milliseconds(),
		t.cfg.MaxMessages, t.cfg.MaxBytes, partial.Step, partial.Body, partial.Size,
		t.journal.RetentionAfterTurn(f.Outcome).Milliseconds(), partial.Untrusted)
	if err != nil {
		return session.Turn{}, err
	}
	if r.Status() != "closed" {
		return session.Turn{}, db.TurnErrorFromReply(op, memory.Lease{Ref: f.Ref, TurnID: f.TurnID, Epoch: f.Epoch}, r)
	}
	turn, err := decodeTurn(f.TurnID, r.Hash(1))
	if err != nil {
		return session.Turn{}, db.NewUnreadableError(op, err)
	}
	return turn, nil
}
