package storage

import (
	"context"
	"slices"

	"github.com/troupe-dev/troupe/internal/toolrounds"
	"github.com/troupe-dev/troupe/pkg/conversation"
	"github.com/troupe-dev/troupe/pkg/session"
)

// History is a part of a conversation, with the rounds of one agent.
type History struct {
	Messages []conversation.Message
	Rounds   []conversation.Rounds
}

// LatestHistory reads at most limit of the latest stored messages, and the latest rounds of the agent among them, as far as
// one call of the store returns them. info is the session as stored.
func (s *Session) LatestHistory(ctx context.Context, agent string, info session.Session, limit int) (h History, err error) {
	h.Messages, err = s.Latest(ctx, info, limit)
	if err == nil && len(h.Messages) > 0 {
		h.Rounds, err = s.Rounds(ctx, agent, h.Messages[0].Sequence)
	}
	return h, err
}

// WholeHistory reads the latest messages as LatestHistory does, with all rounds of the agent among them.
func (s *Session) WholeHistory(ctx context.Context, agent string, info session.Session, limit int) (h History, err error) {
	h.Messages, err = s.Latest(ctx, info, limit)
	if err != nil || len(h.Messages) == 0 {
		return h, err
	}
	h.Rounds, err = toolrounds.All(func(before *conversation.Rounds) ([]conversation.Rounds, error) {
		return s.roundsBefore(ctx, agent, h.Messages[0].Sequence, before)
	})
	return h, err
}

// WithTurn returns the history with what a turn adds that is not stored yet. The messages get the sequences that they will
// have if no other process writes.
func (h History) WithTurn(t *Turn) History {
	h.Messages, h.Rounds = slices.Clip(h.Messages), slices.Clip(h.Rounds)
	h.add(t.Number, t.UserMessages())
	if len(t.RoundMessages) > 0 {
		rounds := conversation.Rounds{Turn: t.Number, Step: 1, After: h.lastSequence()}
		for _, r := range t.RoundMessages {
			rounds.Messages = append(rounds.Messages, r.Message)
		}
		h.Rounds = append(h.Rounds, rounds)
	}
	h.add(t.Number, t.Messages)
	return h
}

func (h *History) add(turn int, messages []conversation.Message) {
	for _, m := range messages {
		m.Turn, m.Sequence = turn, h.lastSequence()+1
		h.Messages = append(h.Messages, m)
	}
}

// lastSequence returns the sequence of the last message (0 if there is none).
func (h *History) lastSequence() int64 {
	if len(h.Messages) == 0 {
		return 0
	}
	return h.Messages[len(h.Messages)-1].Sequence
}

// Merged returns at most limit of the latest messages, with the rounds where they happened.
func (h History) Merged(limit int) []conversation.Message {
	return toolrounds.Merge(h.Messages[max(0, len(h.Messages)-limit):], h.Rounds)
}
