package agent

import (
	"context"
	"fmt"

	"github.com/troupe-dev/troupe/pkg/conversation"
	"github.com/troupe-dev/troupe/pkg/event"
	"github.com/troupe-dev/troupe/pkg/failure"
	"github.com/troupe-dev/troupe/pkg/memory"
	"github.com/troupe-dev/troupe/pkg/session"
)

// Reasons of the warnings that a session gives.
const (
	ReasonSessionLong  = "SESSION_LONG"          // it holds more messages than MaxMessages
	ReasonNotCompacted = "SESSION_NOT_COMPACTED" // it should have been made shorter, and was not
)

// Compact saves, and replaces the oldest messages by a summary: the given one, or with "" one
// made by rule. So many of the latest stay; 0: half of MaxMessages (LP-21, LP-26). Modes: as
// those of Save.
func (s *Session) Compact(ctx context.Context, keep int, summary string) (done conversation.Compaction, err error) {
	err = s.operate("agent.Compact", func() (session.State, error) {
		if err := s.flush(ctx); err != nil {
			return "", err
		}
		done, err = s.compact(ctx, keep, summary)
		return "", err
	})
	return done, err
}

// bound does something about a conversation that became too long, and returns what is to be
// told of it (LP-21, C-20).
func (s *Session) bound(ctx context.Context, before int64) []event.Payload {
	limit, now := int64(s.cfg.MaxMessages), s.Info().Messages
	switch {
	case now <= limit || s.cfg.AutoCompact && s.cfg.NoAutoSave: // the next Save compacts
		return nil
	case s.cfg.AutoCompact:
		if _, err := s.compact(ctx, 0, ""); err != nil {
			return []event.Payload{event.Warning{Reason: ReasonNotCompacted, Message: fmt.Sprintf(
				"session %s holds %d messages and was not compacted: %s", s.ref.Session, now, failure.Plain(err))}}
		}
	case before <= limit:
		return []event.Payload{event.Warning{Reason: ReasonSessionLong, Message: fmt.Sprintf(
			"session %s holds %d messages, more than %d; compact it, or open it with AutoCompact", s.ref.Session, now, limit)}}
	}
	return nil
}

func (s *Session) compact(ctx context.Context, keep int, summary string) (conversation.Compaction, error) {
	if keep <= 0 {
		keep = s.cfg.MaxMessages / 2
	}
	done, err := alone(ctx, s, func(ctx context.Context) (conversation.Compaction, error) {
		return s.cfg.Store.CompactSession(ctx, memory.Compact{Ref: s.ref, Strategy: conversation.Summarize, Keep: keep, Summary: summary})
	})
	if err != nil {
		return done, err
	}
	s.mu.Lock()
	s.known.Messages -= done.Messages
	s.known.Summarized = max(s.known.Summarized, done.Last)
	info := s.known
	s.mu.Unlock()
	if !s.cfg.NoAutoSave {
		return done, nil
	}
	messages, err := s.latest(ctx, info, s.cfg.Window)
	if err == nil {
		s.window = s.latestOf(messages)
	}
	return done, err
}
