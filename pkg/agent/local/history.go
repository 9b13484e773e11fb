package local

import (
	"github.com/troupe-dev/troupe/pkg/agent/local/internal/storage"
	"github.com/troupe-dev/troupe/pkg/conversation"
)

// recentHistory holds the latest messages of a session with NoAutoSave. Turns read the conversation from it instead of
// the store.
type recentHistory struct {
	storage.History
	limit           int    // maximum number of messages
	untrustedSource string // source of untrusted text, also in messages that are gone
}

// set replaces the messages and the rounds.
func (r *recentHistory) set(h storage.History) { r.History = r.latest(h) }

// add appends what a turn adds.
func (r *recentHistory) add(t *storage.Turn) {
	r.untrustedSource = conversation.MostRestrictiveSource(r.untrustedSource, t.UntrustedSource())
	r.History = r.latest(r.WithTurn(t))
}

// forTurn returns the history for a turn that begins.
func (r *recentHistory) forTurn(t *storage.Turn) storage.History { return r.latest(r.WithTurn(t)) }

// latest returns the latest messages, up to the limit, and the rounds among them. It marks the messages with the source of
// untrusted text, even if the message with that text is no longer among them.
func (r *recentHistory) latest(h storage.History) storage.History {
	source := conversation.MostRestrictiveSource(r.untrustedSource, conversation.UntrustedSource(h.Messages))
	h.Messages = conversation.MarkUntrusted(source, conversation.Window(h.Messages, r.limit, 0))
	for len(h.Rounds) > 0 && len(h.Messages) > 0 && h.Rounds[0].After < h.Messages[0].Sequence {
		h.Rounds = h.Rounds[1:]
	}
	return h
}
