package render

import (
	"cmp"
	"fmt"

	"github.com/troupe-dev/troupe/pkg/conversation"
	"github.com/troupe-dev/troupe/pkg/session"
)

// Settings returns one line about how a session is kept.
func Settings(s session.Settings) string {
	saved, compacted := "saved after each turn", "never compacted"
	if s.NoAutoSave {
		saved = "saved on request"
	}
	if s.AutoCompact {
		compacted = "compacted by " + string(cmp.Or(s.Strategy, conversation.Summarize))
	}
	if s.SummaryByModel {
		compacted += " of a model"
	}
	return fmt.Sprintf("up to %d messages, %s, %s", s.Limit(), saved, compacted)
}
