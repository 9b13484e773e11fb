package hook

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"

	"github.com/troupe-dev/troupe/internal/statechange"
	"github.com/troupe-dev/troupe/pkg/failure"
)

// Update changes a key to what update returns for its old value. The old value is nil if the key does not exist; a result of nil
// removes the key. Unlike Get and Set, Update loses no change of another session or of a tool that runs at the same time: if the key
// has changed when the step is stored, update is called again with the new value. So update must depend only on the old value, and
// must not change the Memory. A successor of a lost worker, which does not run the tool again, merges the change instead: see
// docs/memory.md.
//
// Modes: those of Get and Set; the mode of the error that update returns, or agent_logic if it has none. Then nothing changes.
func (m *Memory) Update(ctx context.Context, key string, update func(old json.RawMessage) (any, error)) error {
	return m.update(ctx, key, func(old json.RawMessage) (json.RawMessage, error) {
		value, err := update(old)
		if _, ok := errors.AsType[*failure.Error](err); err != nil && !ok {
			err = failure.Newf(failure.AgentLogic, "hook.Memory", "state %q: the update failed", key).Because(err)
		}
		if err != nil || value == nil {
			return nil, err
		}
		text, err := json.Marshal(value)
		if err != nil {
			return nil, statechange.NewUnencodableError(key, err)
		}
		return text, nil
	})
}

// Increment adds by to the integer of a key and returns the sum as this turn sees it. A key that does not exist counts as 0. Like
// Update it loses no change: increments of all sessions add up. Modes: those of Update; user_invalid_input if the value is no integer,
// or the sum is too large for an int64.
func (m *Memory) Increment(ctx context.Context, key string, by int64) (sum int64, err error) {
	var last int64 // the update may run again later, when the caller has its sum
	err = m.update(ctx, key, statechange.Increment(key, by, &last))
	return last, err
}

// AddToSet adds members to the set of a key: a sorted JSON array of texts without duplicates. A key that does not exist counts as the
// empty set. Like Update it loses no change: the set has the members that all sessions have added. Modes: those of Update;
// user_invalid_input if the value is no array of texts.
func (m *Memory) AddToSet(ctx context.Context, key string, members ...string) error {
	return m.update(ctx, key, statechange.AddToSet(key, members))
}

// RemoveFromSet removes members from a set, as AddToSet adds them. Members that the set does not have are ignored.
func (m *Memory) RemoveFromSet(ctx context.Context, key string, members ...string) error {
	return m.update(ctx, key, statechange.RemoveFromSet(key, members))
}

// Patch merges patch into the object of a key, as a JSON merge patch does (RFC 7396): its members are set, objects in it are merged at
// every depth, and a member that is null is removed. A key that does not exist counts as an empty object. Like Update it loses no
// change of other members. Modes: those of Update; user_invalid_input if the value is no object, or patch is none.
func (m *Memory) Patch(ctx context.Context, key string, patch any) error {
	update, err := statechange.Patch(key, patch)
	if err != nil {
		return err
	}
	return m.update(ctx, key, update)
}

// update changes a key. It calls update without the lock, and again if another goroutine has changed the key meanwhile.
func (m *Memory) update(ctx context.Context, key string, update statechange.Update) error {
	if err := m.checkOwner(key); err != nil {
		return err
	}
	for range 1000 {
		old, err := m.Get(ctx, key)
		if err != nil && !errors.Is(err, ErrNoKey) {
			return err
		}
		value, err := update(bytes.Clone(old))
		if err != nil {
			return err
		}
		m.mu.Lock()
		if now, err := m.get(ctx, key); err == nil && bytes.Equal(now, old) {
			m.apply(key, statechange.Change{Value: value, Base: old, Updates: []statechange.Update{update}, Revision: m.stored.Revision(key)})
			m.mu.Unlock()
			return nil
		}
		m.mu.Unlock()
	}
	return failure.Newf(failure.AgentLogic, "hook.Memory", "state %q: the update changes its own key; return the new value instead", key)
}
