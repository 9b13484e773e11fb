package local

import (
	"context"
	"slices"

	"github.com/troupe-dev/troupe/pkg/agent/local/internal/storage"
	"github.com/troupe-dev/troupe/pkg/conversation"
	"github.com/troupe-dev/troupe/pkg/session"
)

// history is a part of a conversation, with the agent's own rounds.
type history struct {
	messages []conversation.Message
	rounds   []conversation.Rounds
}

// loadHistory reads at most limit of the latest stored messages, and the rounds of the agent among them. info is the
// session as stored.
func loadHistory(ctx context.Context, from *storage.Session, agent string, info session.Session, limit int) (h history, err error) {
	h.messages, err = from.Latest(ctx, info, limit)
	if err == nil && len(h.messages) > 0 {
		h.rounds, err = from.Rounds(ctx, agent, h.messages[0].Sequence)
	}
	return h, err
}

// withTurn returns the history with what a turn adds that is not stored yet. The messages get the sequences that they will
// have if no other process writes.
func (h history) withTurn(t *storage.Turn) history {
	h.messages, h.rounds = slices.Clip(h.messages), slices.Clip(h.rounds)
	h.add(t.Number, t.UserMessages())
	if len(t.RoundMessages) > 0 {
		rounds := conversation.Rounds{Turn: t.Number, Step: 1, After: h.lastSequence()}
		for _, r := range t.RoundMessages {
			rounds.Messages = append(rounds.Messages, r.Message)
		}
		h.rounds = append(h.rounds, rounds)
	}
	h.add(t.Number, t.Messages)
	return h
}

func (h *history) add(turn int, messages []conversation.Message) {
	for _, m := range messages {
		m.Turn, m.Sequence = turn, h.lastSequence()+1
		h.messages = append(h.messages, m)
	}
}

// lastSequence returns the sequence of the last message (0 if there is none).
func (h *history) lastSequence() int64 {
	if len(h.messages) == 0 {
		return 0
	}
	return h.messages[len(h.messages)-1].Sequence
}

// recentHistory holds the latest messages of a session with NoAutoSave. Turns read the conversation from it instead of
// the store.
type recentHistory struct {
	history
	limit           int    // maximum number of messages
	untrustedSource string // source of untrusted text, also in messages that are gone
}

// set replaces the messages and the rounds.
func (r *recentHistory) set(h history) { r.history = r.latest(h) }

// add appends what a turn adds.
func (r *recentHistory) add(t *storage.Turn) {
	r.untrustedSource = conversation.MostRestrictiveSource(r.untrustedSource, t.UntrustedSource())
	r.history = r.latest(r.withTurn(t))
}

// forTurn returns the history for a turn that begins.
func (r *recentHistory) forTurn(t *storage.Turn) history { return r.latest(r.withTurn(t)) }

// latest returns the latest messages, up to the limit, and the rounds among them. It marks the messages with the source of
// untrusted text, even if the message with that text is no longer among them.
func (r *recentHistory) latest(h history) history {
	source := conversation.MostRestrictiveSource(r.untrustedSource, conversation.UntrustedSource(h.messages))
	h.messages = conversation.MarkUntrusted(source, conversation.Window(h.messages, r.limit, 0))
	for len(h.rounds) > 0 && len(h.messages) > 0 && h.rounds[0].After < h.messages[0].Sequence {
		h.rounds = h.rounds[1:]
	}
	return h
}
