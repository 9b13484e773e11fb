package redisstore

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/redis/go-redis/v9"
	"google.golang.org/protobuf/proto"

	"github.com/troupe-dev/troupe/internal/wire"
	"github.com/troupe-dev/troupe/pkg/conversation"
	troupev1 "github.com/troupe-dev/troupe/pkg/gen/troupe/v1"
	"github.com/troupe-dev/troupe/pkg/memory"
	"github.com/troupe-dev/troupe/pkg/session"
)

// waitingIn is what the session keeps of a step whose calls wait, <turn>:<step>; empty when
// none does.
func waitingIn(c memory.Commit) string {
	if len(c.Result.Pending) == 0 {
		return ""
	}
	return c.TurnID + ":" + strconv.Itoa(c.Result.Step)
}

// journalOfWaiting is the key of the journal of a step, <turn>:<step>.
func journalOfWaiting(waiting string) string { return "jrnl:" + waiting }

// needed is how many of the latest messages the turn whose calls wait is about: the one with
// which its window ends, and all behind it. None when no turn waits any more.
func (s *Store) needed(ctx context.Context, op string, ref session.Ref, waiting string, messages []conversation.Message) (int, error) {
	turnID, _, waits := strings.Cut(waiting, ":")
	if !waits {
		return 0, nil
	}
	first, err := s.redis.HGet(ctx, key(ref, "turn:"+turnID), "first").Int64()
	if errors.Is(err, redis.Nil) {
		return 0, nil
	}
	if err != nil {
		return 0, s.redis.Fault(op, err)
	}
	n := 0
	for _, m := range messages {
		if m.Sequence >= first {
			n++
		}
	}
	return n, nil
}

// waiting is the session with the calls that wait, which are in the result of their step. A
// turn that is forgotten does not wait any more.
func (s *Store) waiting(ctx context.Context, op string, ref session.Ref, found session.Session, waiting string) (session.Session, error) {
	turnID, step, waits := strings.Cut(waiting, ":")
	if !waits {
		return found, nil
	}
	stored, err := s.redis.HGet(ctx, key(ref, "turn:"+turnID), "result"+step).Bytes()
	if errors.Is(err, redis.Nil) {
		found.WaitingTurn = ""
		return found, nil
	}
	if err != nil {
		return found, s.redis.Fault(op, err)
	}
	var result troupev1.StepResult
	if err := proto.Unmarshal(stored, &result); err != nil {
		return found, unreadable(op, fmt.Errorf("result of step %s of turn %s: %w", step, turnID, err))
	}
	found.Pending = wire.PendingFromProto(result.GetPending())
	return found, nil
}
