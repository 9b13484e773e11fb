package compact

import (
	"fmt"

	"github.com/troupe-dev/troupe/pkg/memory"
	"github.com/troupe-dev/troupe/pkg/session"
)

// ReasonSessionLong is the reason of the warning that a session holds more messages than its settings say.
const ReasonSessionLong = "SESSION_LONG"

// Growth says how long the session of a turn was when the turn began, and how long it may become. The zero value
// belongs to a turn whose owner was lost before the turn ended. Its session is checked after the next turn.
type Growth struct {
	settings session.Settings
	known    bool
	before   int64 // number of messages before the turn
	removed  int64 // sequences without a message; the last sequence minus this is the number of messages
}

// NewGrowth returns the growth of a turn that has begun.
func NewGrowth(b memory.BeginResult) Growth {
	return Growth{settings: b.Settings, known: true, before: b.Messages, removed: b.Removed}
}

// after returns the number of messages in the session after a turn. The record of the turn may be older than the
// results of its steps.
func (g Growth) after(closed session.Turn) int64 {
	last := closed.Sequence
	for _, r := range closed.Steps {
		last = max(last, r.Sequence)
	}
	return last - g.removed
}

// Session returns the session after a turn, for Enqueue. The model of the agent that spoke last writes a summary.
func (g Growth) Session(ref session.Ref, closed session.Turn) Session {
	s := Session{Ref: ref, Settings: g.settings}
	if !g.known || g.settings.NoAutoSave { // it is compacted when it is saved
		return s
	}
	s.Messages = g.after(closed)
	for _, r := range closed.Steps {
		if r.Failure == nil {
			s.Agent = r.Agent
		}
	}
	return s
}

// Warning returns the warning that the turn has made its session too long, if no compaction will shorten it. The text
// is empty otherwise. There is one warning for each time that the session crosses its limit (LP-21, C-20).
func (g Growth) Warning(ref session.Ref, closed session.Turn) (reason, text string) {
	after := g.after(closed)
	if !g.known || g.settings.AutoCompact || !g.settings.Crosses(g.before, after) {
		return "", ""
	}
	return ReasonSessionLong, fmt.Sprintf("session %s holds %d messages, more than %d; compact it, or set auto_compact",
		ref.Session, after, g.settings.Limit())
}
