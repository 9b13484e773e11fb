// Package statechange describes how a turn changes keys of state. A change of a shared key can be repeated on the value
// that another session has stored in the meantime.
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

// Update returns the new value of a key, given its old one. An empty value means that the key does not exist. It may be
// called several times, so it must depend only on the old value.
type Update func(old json.RawMessage) (json.RawMessage, error)

// Change is how a turn changes a key.
type Change struct {
	Value    json.RawMessage // new value as the turn sees it (empty removes the key)
	Base     json.RawMessage // value before the Updates (empty if the key did not exist)
	Updates  []Update        // updates that turn Base into Value, in order (nil if the key was set regardless of its value)
	Restored bool            // the change comes from a journal, so the revision does not belong to Base
	Revision int64           // revision of the key when the turn read it, or Unread
}

// Then returns the change that has the effect of c followed by later.
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

// ApplyTo applies the change to another value than its Base. An error has the mode of the Update that failed.
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
