package sessions

import (
	"cmp"
	"context"
	_ "embed"
	"errors"
	"strings"

	"github.com/redis/go-redis/v9"

	"github.com/troupe-dev/troupe/pkg/conversation"
	"github.com/troupe-dev/troupe/pkg/memory"
	"github.com/troupe-dev/troupe/pkg/session"
	"github.com/troupe-dev/troupe/services/memory/internal/redisstore/db"
	"github.com/troupe-dev/troupe/services/memory/internal/redisstore/journal"
	"github.com/troupe-dev/troupe/services/memory/internal/redisstore/messages"
)

//go:embed scripts/compact.lua
var compactSource string

var compactScript = db.Register("compact", compactSource)

// CompactSession implements memory.Sessions.
func (s *Sessions) CompactSession(ctx context.Context, c memory.Compact) (conversation.Compaction, error) {
	const op = "memory.CompactSession"
	for range db.MaxAttempts {
		meta, err := s.db.ReadMeta(ctx, op, c.Ref)
		if err != nil {
			return conversation.Compaction{}, err
		}
		if meta["open"] != "" {
			return conversation.Compaction{}, db.NewSessionBusyError(op, c.Ref, meta["open"], meta["open_trace"])
		}
		held, err := s.readAllMessages(ctx, op, c.Ref, meta)
		if err != nil {
			return conversation.Compaction{}, err
		}
		needed, err := s.countMessagesForPendingCalls(ctx, op, c.Ref, meta["waiting"], held)
		if err != nil {
			return conversation.Compaction{}, err
		}
		keep := max(cmp.Or(c.Keep, memory.DefaultKeep), needed)
		if c.UpTo > 0 {
			keep = max(keep, countMessagesFrom(held, c.UpTo+1))
		}
		done := conversation.Compact(held, cmp.Or(c.Strategy, conversation.Summarize), keep, c.Summary, memory.MaxSummaryBytes)
		if done.Messages == 0 {
			return done, nil
		}
		r, err := s.db.RunScript(ctx, op, c.Ref, compactScript, []string{db.Key(c.Ref, "meta"), db.Key(c.Ref, "log")},
			meta["seq"], cmp.Or(meta["summarized"], "0"), meta["count"], meta["bytes"],
			done.Last, done.Messages, messageSizeUpTo(held, done.Last), done.Summary, meta["waiting"])
		if err != nil {
			return conversation.Compaction{}, err
		}
		switch r.Status() {
		case "ok":
			if err := s.journal.DropRounds(ctx, op, c.Ref, journal.ParseAgents(meta["agents"]), done.Last); err != nil {
				return done, err
			}
			return done, s.journal.DeleteCompactedJournals(ctx, op, c.Ref, done.Last)
		case "changed":
		default:
			return conversation.Compaction{}, db.SessionErrorFromReply(op, c.Ref, r)
		}
	}
	return conversation.Compaction{}, db.NewTooManyChangesError(op, c.Ref)
}

// messageSizeUpTo returns the total size of the messages up to a sequence, without the summary.
func messageSizeUpTo(held []conversation.Message, last int64) int64 {
	var bytes int64
	for _, m := range held {
		if m.Role != conversation.RoleSummary && m.Sequence <= last {
			bytes += int64(conversation.Size(m))
		}
	}
	return bytes
}

// readAllMessages returns all messages of a session after its summary.
func (s *Sessions) readAllMessages(ctx context.Context, op string, ref session.Ref, meta map[string]string) ([]conversation.Message, error) {
	var all []conversation.Message
	if meta["summary"] != "" {
		all = append(all, messages.SummaryMessage(db.ParseNumber(meta["summarized"]), meta["summary"]))
	}
	err := messages.ScanLog(ctx, s.db, op, ref, func(m conversation.Message) bool {
		all = append(all, m)
		return true
	})
	return all, err
}

// countMessagesForPendingCalls returns how many of the latest messages the turn with pending calls needs. These
// are the last message of its window and all later ones. It returns 0 if no calls are pending.
func (s *Sessions) countMessagesForPendingCalls(ctx context.Context, op string, ref session.Ref, waiting string, held []conversation.Message) (int, error) {
	turnID, _, waits := strings.Cut(waiting, ":")
	if !waits {
		return 0, nil
	}
	first, err := s.db.HGet(ctx, db.Key(ref, "turn:"+turnID), "first").Int64()
	if errors.Is(err, redis.Nil) {
		return 0, nil
	}
	if err != nil {
		return 0, s.db.Failure(op, err)
	}
	return countMessagesFrom(held, first), nil
}

// countMessagesFrom counts the messages from the given sequence on.
func countMessagesFrom(held []conversation.Message, first int64) int {
	n := 0
	for _, m := range held {
		if m.Sequence >= first {
			n++
		}
	}
	return n
}
