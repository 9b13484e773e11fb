package storage

import (
	"cmp"
	"context"

	"github.com/troupe-dev/troupe/internal/summary"
	"github.com/troupe-dev/troupe/pkg/conversation"
	"github.com/troupe-dev/troupe/pkg/llm"
	"github.com/troupe-dev/troupe/pkg/memory"
	"github.com/troupe-dev/troupe/pkg/session"
)

// NewCompaction returns the automatic compaction of a session with the given number of messages. If the settings say so,
// the model writes its summary. If the model fails, the store makes one by rule.
func (s *Session) NewCompaction(ctx context.Context, model llm.Model, settings session.Settings, messages int64) (memory.Compact, error) {
	c := memory.Compact{Ref: s.Ref, Keep: settings.Keep(), Strategy: cmp.Or(settings.Strategy, conversation.Summarize)}
	if !settings.SummaryByModel {
		return c, nil
	}
	all, err := s.MessagesAfter(ctx, 0)
	if err != nil {
		return c, err
	}
	read, upTo := summary.Select(all, messages-int64(c.Keep), settings.Strategy)
	if text, _, err := summary.Write(ctx, model, read, memory.MaxSummaryBytes); err == nil {
		c.Summary, c.UpTo = text, upTo
	}
	return c, nil
}
