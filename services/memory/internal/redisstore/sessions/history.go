package sessions

import (
	"context"
	_ "embed"
	"slices"

	"github.com/troupe-dev/troupe/pkg/conversation"
	"github.com/troupe-dev/troupe/pkg/memory"
	"github.com/troupe-dev/troupe/pkg/session"
	"github.com/troupe-dev/troupe/services/memory/internal/caller"
	"github.com/troupe-dev/troupe/services/memory/internal/redisstore/db"
	"github.com/troupe-dev/troupe/services/memory/internal/redisstore/messages"
)

//go:embed scripts/history.lua
var historySource string

var historyScript = db.Register("history", messages.ReadSource, historySource)

// LoadHistory implements memory.Sessions.
func (s *Sessions) LoadHistory(ctx context.Context, ref session.Ref, after int64, limit int) ([]conversation.Message, error) {
	const op = "memory.LoadHistory"
	holder := caller.WorkerFromContext(ctx)
	r, err := s.db.RunReadOnlyScript(ctx, op, ref, historyScript, []string{db.Key(ref, "meta"), db.Key(ref, "log")},
		after, limit, messages.MaxReadBytes, holder.Epoch)
	if err != nil {
		return nil, err
	}
	switch r.Status() {
	case "ok":
	case "no_session":
		return nil, db.NewSessionNotFoundError(op, ref)
	default:
		return nil, db.TurnErrorFromReply(op, holder.Lease, r)
	}
	var history []conversation.Message
	if summarized := db.ParseNumber(r.Text(2)); summarized > 0 {
		history = append(history, messages.SummaryMessage(summarized, r.Text(3)))
	}
	entries, err := messages.DecodeEntries(r.Array(1))
	if err != nil {
		return nil, db.NewUnreadableError(op, err)
	}
	history = append(history, entries...)
	return history[:conversation.CountFitting(slices.Values(history), memory.MaxWindowBytes)], nil
}
