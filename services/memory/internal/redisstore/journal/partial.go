package journal

import (
	"context"
	"strings"

	"github.com/troupe-dev/troupe/pkg/conversation"
	"github.com/troupe-dev/troupe/pkg/memory"
	"github.com/troupe-dev/troupe/pkg/session"
	"github.com/troupe-dev/troupe/services/memory/internal/redisstore/db"
	"github.com/troupe-dev/troupe/services/memory/internal/redisstore/messages"
)

// PartialReply is the unfinished reply of the running step of a turn.
type PartialReply struct {
	Step int
	Body []byte // the encoded message (empty means none)
	Size int    // size of the message, as conversation.Size counts

	Journals []int // steps that may have a journal to end: the running step, and the steps whose calls were answered

	Untrusted string // the source of untrusted text that the step has read (empty means none)
}

// ReadPartialReply returns the unfinished reply of a turn's running step, which it reads from the journal. A turn
// that is not open has none.
func (j *Journal) ReadPartialReply(ctx context.Context, op string, ref session.Ref, turnID string) (PartialReply, error) {
	turn, err := j.db.HMGet(ctx, db.Key(ref, "turn:"+turnID), "outcome", "steps", "inherits").Result()
	if err != nil {
		return PartialReply{}, j.db.Failure(op, err)
	}
	partial := PartialReply{Step: int(db.ParseNumber(db.Reply(turn).Text(1))) + 1, Body: []byte{}}
	partial.Journals = []int{partial.Step}
	for step := range strings.SplitSeq(db.Reply(turn).Text(2), ",") {
		if n := int(db.ParseNumber(step)); n > 0 && n != partial.Step {
			partial.Journals = append(partial.Journals, n)
		}
	}
	if outcome, known := turn[0].(string); !known || outcome != "" {
		return partial, nil
	}
	stored, err := j.db.HGetAll(ctx, db.Key(ref, db.JournalName(turnID, partial.Step))).Result()
	if err != nil {
		return PartialReply{}, j.db.Failure(op, err)
	}
	entries, err := decodeHashEntries(stored)
	if err != nil {
		return PartialReply{}, db.NewUnreadableError(op, err)
	}
	partial.Untrusted = memory.JournalUntrustedSource(entries)
	if m, ok := memory.PartialMessage(entries); ok {
		partial.Size = conversation.Size(m)
		if partial.Body, err = messages.EncodeBody(m); err != nil {
			return PartialReply{}, db.NewUnreadableError(op, err)
		}
	}
	return partial, nil
}
