package local

import (
	"context"
	"fmt"

	"github.com/troupe-dev/troupe/pkg/agent/local/internal/opening"
	"github.com/troupe-dev/troupe/pkg/conversation"
	"github.com/troupe-dev/troupe/pkg/event"
	"github.com/troupe-dev/troupe/pkg/failure"
	"github.com/troupe-dev/troupe/pkg/memory"
	"github.com/troupe-dev/troupe/pkg/session"
)

// Reasons of the warnings that a session emits.
const (
	ReasonSessionLong  = "SESSION_LONG"          // it holds more messages than MaxMessages
	ReasonNotCompacted = "SESSION_NOT_COMPACTED" // its compaction failed
)

// Compact saves the session and replaces its oldest messages by a summary. If summary is empty, a fixed rule makes
// the summary. keep is how many of the latest messages stay (0 means half of MaxMessages, LP-21, LP-26). Modes: as
// for Save.
func (s *Session) Compact(ctx context.Context, keep int, summary string) (done conversation.Compaction, err error) {
	err = s.runOperation("local.Compact", func() (session.State, error) {
		if err := s.flush(ctx); err != nil {
			return "", err
		}
		done, err = s.compact(ctx, memory.Compact{Keep: keep, Strategy: conversation.Summarize, Summary: summary})
		return "", err
	})
	return done, err
}

// checkLength compacts a conversation that has become too long, or returns a warning about it (LP-21, C-20).
// before is the number of messages before the turn.
func (s *Session) checkLength(ctx context.Context, before int64) []event.Payload {
	limit, now := int64(s.cfg.MaxMessages), s.Info().Size.Messages
	switch {
	case now <= limit || s.cfg.AutoCompact && s.cfg.NoAutoSave: // the next Save compacts
		return nil
	case s.cfg.AutoCompact:
		if err := autoCompact(ctx, s); err != nil {
			return []event.Payload{event.Warning{Reason: ReasonNotCompacted, Message: fmt.Sprintf(
				"session %s holds %d messages and was not compacted: %s", s.cfg.ID, now, failure.PlainMessage(err))}}
		}
	case before <= limit:
		return []event.Payload{event.Warning{Reason: ReasonSessionLong, Message: fmt.Sprintf(
			"session %s holds %d messages, more than %d; compact it, or open it with AutoCompact", s.cfg.ID, now, limit)}}
	}
	return nil
}

// autoCompact compacts the conversation of a session as its settings say. If the model writes no summary, a rule makes
// one (LP-26).
func autoCompact(ctx context.Context, s *Session) error {
	c, err := s.storage.NewCompaction(ctx, s.agent.LLM(), s.cfg.settings(), s.Info().Size.Messages)
	if err == nil {
		_, err = s.compact(ctx, c)
	}
	return err
}

func (s *Session) compact(ctx context.Context, c memory.Compact) (conversation.Compaction, error) {
	c.Ref = s.storage.Ref
	if c.Keep <= 0 {
		c.Keep = s.cfg.settings().Keep()
	}
	done, err := opening.CallWithoutLostTurn(ctx, s.opener, func(ctx context.Context) (conversation.Compaction, error) {
		return s.cfg.Store.CompactSession(ctx, c)
	})
	if err != nil {
		return done, err
	}
	info := s.status.RecordCompaction(done)
	if !s.cfg.NoAutoSave {
		return done, nil
	}
	h, err := s.storage.LatestHistory(ctx, s.agent.Name(), info, s.cfg.Window)
	if err == nil {
		s.recent.set(h)
	}
	return done, err
}
