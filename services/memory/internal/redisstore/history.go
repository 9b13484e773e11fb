package redisstore

import (
	"context"
	_ "embed"
	"slices"

	"github.com/troupe-dev/troupe/pkg/conversation"
	"github.com/troupe-dev/troupe/pkg/memory"
	"github.com/troupe-dev/troupe/pkg/session"
)

//go:embed scripts/read.lua
var readSource string

//go:embed scripts/history.lua
var historySource string

var historyScript = script(readSource, historySource)

// readBytes is how much a script reads of a log: the text that a call returns, and beside it
// what the messages are stored with.
const readBytes = memory.MaxWindowBytes + memory.MaxWindow*256

// LoadHistory implements memory.Sessions.
func (s *Store) LoadHistory(ctx context.Context, ref session.Ref, after int64, limit int) ([]conversation.Message, error) {
	const op = "memory.LoadHistory"
	r, err := s.look(ctx, op, ref, historyScript, []string{key(ref, "meta"), key(ref, "log")}, after, limit, readBytes, memory.HolderOf(ctx).Epoch)
	if err != nil {
		return nil, err
	}
	switch r.status() {
	case "ok":
	case "no_session":
		return nil, noSession(op, ref)
	default:
		return nil, refused(op, memory.HolderOf(ctx).Hold, r)
	}
	var messages []conversation.Message
	if summarized := number(r.text(2)); summarized > 0 {
		messages = append(messages, summary(summarized, r.text(3)))
	}
	entries, err := r.entries(1)
	if err != nil {
		return nil, unreadable(op, err)
	}
	messages = append(messages, entries...)
	return messages[:conversation.Fit(slices.Values(messages), memory.MaxWindowBytes)], nil
}

// summary is the message that stands for those that a compaction took out.
func summary(sequence int64, text string) conversation.Message {
	return conversation.Message{Sequence: sequence, Role: conversation.RoleSummary, Text: text}
}

// oldestFirst turns what was read newest first, as far as one answer may hold it.
func oldestFirst(messages []conversation.Message) []conversation.Message {
	messages = messages[:conversation.Fit(slices.Values(messages), memory.MaxWindowBytes)]
	slices.Reverse(messages)
	return messages
}
