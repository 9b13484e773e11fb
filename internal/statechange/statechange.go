// Package statechange describes how a turn changes keys of state, so that a change of a key that sessions share can be
// repeated on the value that another session has given it in the meantime.
package statechange

import (
	"bytes"
	"encoding/json"
	"slices"
)

// Unread is the revision of a key whose value the turn has not read.
const Unread = -1

// ReasonOverwritten is the reason of a warning that a changed value was overwritten, and not merged.
const ReasonOverwritten = "STATE_OVERWRITTEN"

// Update returns the new value of a key for its old one. An empty value means that the key does not exist. It may be
// called several times, so it must depend only on the old value.
type Update func(old json.RawMessage) (json.RawMessage, error)

// Change is how a turn changes a key.
type Change struct {
	Value    json.RawMessage // new value as the turn sees it (empty removes the key)
	Base     json.RawMessage // value before the Updates (empty if the key did not exist)
	Updates  []Update        // what made Value of Base, in order (nil if the key was set whatever it had been)
	Restored bool            // the change comes from a journal, so the revision does not belong to Base
	Revision int64           // revision of the key when the turn read it, or Unread
}

// Then returns the change that both make together.
func (c Change) Then(later Change) Change {
	switch {
	case later.Updates == nil:
		return later
	case c.Updates == nil:
		c.Value = later.Value
		return c
	default:
		c.Value, c.Updates, c.Restored = later.Value, slices.Concat(c.Updates, later.Updates), c.Restored || later.Restored
		return c
	}
}

// ApplyTo returns the value that the change makes of another value than its Base. Mode: the one of the Update that
// fails.
func (c Change) ApplyTo(current json.RawMessage) (json.RawMessage, error) {
	if c.Updates == nil {
		return c.Value, nil
	}
	for _, update := range c.Updates {
		var err error
		if current, err = update(bytes.Clone(current)); err != nil {
			return nil, err
		}
	}
	return current, nil
}
