package inmem

import (
	"context"

	"github.com/troupe-dev/troupe/pkg/failure"
	"github.com/troupe-dev/troupe/pkg/memory"
	"github.com/troupe-dev/troupe/pkg/session"
)

// DeleteSession implements memory.Sessions.
func (s *Store) DeleteSession(_ context.Context, ref session.Ref) (memory.Erasure, error) {
	const op = "memory.DeleteSession"
	s.mu.Lock()
	defer s.mu.Unlock()
	c, err := s.get(op, ref)
	if failure.Is(err, failure.SessionDeleted) {
		return s.sessions[ref].erased, nil
	}
	if err != nil {
		return memory.Erasure{}, err
	}
	now := s.now()
	erased := memory.Erasure{Session: ref.Session, Began: now, Ended: now, Remains: []memory.Remainder{memory.SessionRemainder(now)}}
	messages, waiting := int64(len(c.log)), int64(0)
	if t := s.turn(c, c.WaitingTurn); t != nil {
		waiting = 1
	}
	erased.Add(map[string]int64{
		memory.KindMessages: messages, memory.KindTurns: int64(c.Turns), memory.KindStateKeys: int64(len(c.state.values)),
		memory.KindArtifacts: int64(len(c.artifacts)), memory.KindArtifactBytes: c.bytes(), memory.KindWaiting: waiting,
	})
	s.sessions[ref] = &conversed{epoch: c.epoch, deleted: now, erased: erased}
	return erased, nil
}

// EraseUser implements memory.Sessions. Nothing is late here: all that a session does is one
// step under the lock.
func (s *Store) EraseUser(_ context.Context, tenant, user string) (memory.ErasedUser, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	who := owner{tenant, user}
	s.leaving[who] = true
	var left []string
	for ref, c := range s.sessions {
		if ref.Tenant == tenant && c.User == user && c.deleted.IsZero() && len(left) < memory.MaxPage {
			left = append(left, ref.Session)
		}
	}
	if len(left) > 0 {
		return memory.ErasedUser{Sessions: left}, nil
	}
	now := s.now()
	erased := memory.Erasure{User: user, Began: now, Ended: now, Remains: []memory.Remainder{memory.UserRemainder(now)}}
	if state := s.shared[who]; state != nil {
		erased.Add(map[string]int64{memory.KindUserState: int64(len(state.values))})
	}
	if shelf := s.shelves[who]; shelf != nil {
		erased.Add(map[string]int64{memory.KindUserArtifacts: int64(len(shelf.artifacts)), memory.KindUserBytes: shelf.bytes()})
	}
	delete(s.shared, who)
	delete(s.shelves, who)
	delete(s.leaving, who)
	return memory.ErasedUser{Erasure: erased}, nil
}
