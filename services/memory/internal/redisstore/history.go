package redisstore

import (
	"context"
	"slices"
	"strconv"

	"github.com/troupe-dev/troupe/pkg/conversation"
	"github.com/troupe-dev/troupe/pkg/failure"
	"github.com/troupe-dev/troupe/pkg/memory"
	"github.com/troupe-dev/troupe/pkg/session"
)

// GetSession implements memory.Sessions.
func (s *Store) GetSession(ctx context.Context, ref session.Ref) (session.Session, error) {
	const op = "memory.GetSession"
	meta, err := s.redis.HGetAll(ctx, key(ref, "meta")).Result()
	if err != nil {
		return session.Session{}, s.redis.Fault(op, err)
	}
	if len(meta) == 0 {
		return session.Session{}, noSession(op, ref)
	}
	return session.Session{
		ID:           ref.Session,
		State:        session.State(meta["state"]),
		Turns:        int(number(meta["turns"])),
		Messages:     number(meta["seq"]),
		Bytes:        number(meta["bytes"]),
		Created:      moment(meta["created"]),
		LastActivity: moment(meta["active"]),
		OpenTurn:     meta["open"],
		LastTrace:    meta["last_trace"],
	}, nil
}

// LoadHistory implements memory.Sessions.
func (s *Store) LoadHistory(ctx context.Context, ref session.Ref, after int64, limit int) ([]conversation.Message, error) {
	const op = "memory.LoadHistory"
	entries, err := s.redis.XRangeN(ctx, key(ref, "log"), strconv.FormatInt(after+1, 10)+"-0", "+", int64(limit)).Result()
	if err != nil {
		return nil, s.redis.Fault(op, err)
	}
	if len(entries) == 0 { // a session has at least one message, so this is beyond its end or it is not there
		if _, err := s.GetSession(ctx, ref); err != nil {
			return nil, err
		}
	}
	messages := make([]conversation.Message, len(entries))
	for i, entry := range entries {
		if messages[i], err = message(entry); err != nil {
			return nil, unreadable(op, err)
		}
	}
	return messages[:conversation.Fit(slices.Values(messages), memory.MaxWindowBytes)], nil
}

func noSession(op string, ref session.Ref) error {
	return failure.Newf(failure.NotFound, op, "there is no session %s; a session begins with its first turn", ref.Session).
		With("session_id", ref.Session)
}
