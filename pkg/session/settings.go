package session

import (
	"cmp"

	"github.com/troupe-dev/troupe/pkg/conversation"
	"github.com/troupe-dev/troupe/pkg/failure"
)

// Settings say how a session is kept. The zero value is the default: every turn is saved, and the turn with which
// the session becomes too long has a warning (LP-2, LP-21, C-20).
type Settings struct {
	// MaxMessages is how many messages the session may hold before it is too long, 2 to the limit of a session
	// (0 means DefaultMaxMessages).
	MaxMessages int
	// NoAutoSave keeps the messages of turns out of the history until the session is saved, paused or closed
	// (LP-23). They are durable, and later turns of the session see them (C-19).
	NoAutoSave bool
	// AutoCompact shortens a session that is too long to half of MaxMessages, between its turns.
	AutoCompact bool
	// Strategy is how AutoCompact shortens it (empty means conversation.Summarize).
	Strategy conversation.Strategy
	// SummaryByModel lets the model of the agent write the summary of an automatic compaction. If the model fails,
	// the summary is made by rule (LP-26).
	SummaryByModel bool
}

// Limit returns how many messages the session may hold before it is too long.
func (s Settings) Limit() int64 { return int64(cmp.Or(s.MaxMessages, DefaultMaxMessages)) }

// Keep returns how many messages an automatic compaction keeps.
func (s Settings) Keep() int { return int(s.Limit() / 2) }

// Crosses reports whether a session becomes too long when it grows from the first to the second number of messages.
func (s Settings) Crosses(before, after int64) bool { return before <= s.Limit() && after > s.Limit() }

// Check returns an error that names the first setting that is wrong. Modes: user_invalid_input.
func (s Settings) Check(op string) error {
	wrong := func(field, format string, args ...any) error {
		return failure.Newf(failure.UserInvalidInput, op, field+": "+format, args...).With("fields", field)
	}
	switch {
	case s.MaxMessages != 0 && (s.MaxMessages < 2 || s.MaxMessages > MaxMessages):
		return wrong("max_messages", "%d is not between 2 and %d, which a session may hold; use 0 for %d", s.MaxMessages, MaxMessages, DefaultMaxMessages)
	case s.Strategy != "" && s.Strategy != conversation.SlidingWindow && s.Strategy != conversation.Summarize && s.Strategy != conversation.Hierarchical:
		return wrong("strategy", "%q is unknown; use %s, %s or %s", s.Strategy, conversation.SlidingWindow, conversation.Summarize, conversation.Hierarchical)
	case !s.AutoCompact && (s.Strategy != "" || s.SummaryByModel):
		return wrong("auto_compact", "is off, so strategy and summary_by_model have no effect; set it, or leave them out")
	case s.SummaryByModel && s.Strategy == conversation.SlidingWindow:
		return wrong("summary_by_model", "%s has no summary that a model could write; use another strategy", s.Strategy)
	}
	return nil
}
