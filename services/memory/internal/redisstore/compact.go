package redisstore

import (
	"cmp"
	"context"
	_ "embed"

	"github.com/troupe-dev/troupe/pkg/conversation"
	"github.com/troupe-dev/troupe/pkg/failure"
	"github.com/troupe-dev/troupe/pkg/memory"
	"github.com/troupe-dev/troupe/pkg/session"
)

//go:embed scripts/compact.lua
var compactSource string

var compactScript = script(compactSource)

// maxRounds bounds how often a call reads again because somebody else wrote meanwhile. Each
// time another caller got on.
const maxRounds = 5

// CompactSession implements memory.Sessions.
func (s *Store) CompactSession(ctx context.Context, c memory.Compact) (conversation.Compaction, error) {
	const op = "memory.CompactSession"
	for range maxRounds {
		meta, err := s.meta(ctx, op, c.Ref)
		if err != nil {
			return conversation.Compaction{}, err
		}
		if meta["open"] != "" {
			return conversation.Compaction{}, busy(op, c.Ref, meta["open"], meta["open_trace"])
		}
		messages, err := s.whole(ctx, op, c.Ref, meta)
		if err != nil {
			return conversation.Compaction{}, err
		}
		needed, err := s.needed(ctx, op, c.Ref, meta["waiting"], messages)
		if err != nil {
			return conversation.Compaction{}, err
		}
		keep := max(cmp.Or(c.Keep, memory.DefaultKeep), needed)
		done := conversation.Compact(messages, cmp.Or(c.Strategy, conversation.Summarize), keep, c.Summary, memory.MaxSummaryBytes)
		if done.Messages == 0 {
			return done, nil
		}
		var bytes int64
		for _, m := range messages {
			if m.Role != conversation.RoleSummary && m.Sequence <= done.Last {
				bytes += int64(conversation.Size(m))
			}
		}
		r, err := s.run(ctx, op, c.Ref, compactScript, []string{key(c.Ref, "meta"), key(c.Ref, "log")},
			meta["seq"], cmp.Or(meta["summarized"], "0"), meta["count"], meta["bytes"], done.Last, done.Messages, bytes, done.Summary, meta["waiting"])
		if err != nil {
			return conversation.Compaction{}, err
		}
		switch r.status() {
		case "ok":
			return done, s.forgetRecorded(ctx, op, c.Ref, done.Last)
		case "changed":
		default:
			return conversation.Compaction{}, refusedFor(op, c.Ref, r)
		}
	}
	return conversation.Compaction{}, unsettled(op, c.Ref)
}

// whole reads all messages that a session holds, behind its summary.
func (s *Store) whole(ctx context.Context, op string, ref session.Ref, meta map[string]string) ([]conversation.Message, error) {
	var messages []conversation.Message
	if meta["summary"] != "" {
		messages = append(messages, summary(number(meta["summarized"]), meta["summary"]))
	}
	err := s.scan(ctx, op, ref, true, func(m conversation.Message) bool {
		messages = append(messages, m)
		return true
	})
	return messages, err
}

// scanned is how many messages one round trip of a scan reads: at most 25 MiB.
const scanned = 100

// scan hands on the messages in the log of a session, forward or the latest first, as long
// as each wants more.
func (s *Store) scan(ctx context.Context, op string, ref session.Ref, forward bool, each func(conversation.Message) bool) error {
	read, from := s.redis.XRevRangeN, "+"
	to := "-"
	if forward {
		read, from, to = s.redis.XRangeN, "-", "+"
	}
	for {
		entries, err := read(ctx, key(ref, "log"), from, to, scanned).Result()
		if err != nil {
			return s.redis.Fault(op, err)
		}
		for _, entry := range entries {
			text, _ := entry.Values["m"].(string)
			m, err := message(entry.ID, text)
			if err != nil {
				return unreadable(op, err)
			}
			if !each(m) {
				return nil
			}
		}
		if len(entries) < scanned {
			return nil
		}
		from = "(" + entries[len(entries)-1].ID
	}
}

func unsettled(op string, ref session.Ref) error {
	return failure.Newf(failure.SessionBusy, op, "session %s changed %d times while it was read; try again when less happens", ref.Session, maxRounds)
}
