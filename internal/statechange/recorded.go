package statechange

import (
	"encoding/json"
	"maps"
	"slices"
)

// Recorded are changes of state as a journal records them.
type Recorded struct {
	SetValues map[string]json.RawMessage `json:"set,omitempty"`     // new values, by key
	Removed   []string                   `json:"removed,omitempty"` // removed keys
	Bases     map[string]json.RawMessage `json:"bases,omitempty"`   // values before the change, of keys that were updated (null if the key did not exist)
}

// Values returns the values of the changed keys. An empty value removes its key.
func (r Recorded) Values() map[string]json.RawMessage {
	values := maps.Clone(r.SetValues)
	if values == nil {
		values = map[string]json.RawMessage{}
	}
	for _, key := range r.Removed {
		values[key] = nil
	}
	return values
}

// record returns the changes as a journal records them.
func record(changes map[string]Change) Recorded {
	r := Recorded{SetValues: map[string]json.RawMessage{}, Bases: map[string]json.RawMessage{}}
	for _, key := range slices.Sorted(maps.Keys(changes)) {
		c := changes[key]
		if c.Updates != nil {
			r.Bases[key] = c.Base
		}
		if len(c.Value) == 0 {
			r.Removed = append(r.Removed, key)
			continue
		}
		r.SetValues[key] = c.Value
	}
	return r
}

// change returns the change of a key. The functions that made it are lost, so an update is merged with other values.
func (r Recorded) change(key string, value json.RawMessage) Change {
	c := Change{Value: value, Revision: Unread}
	base, ok := r.Bases[key]
	if !ok {
		return c
	}
	if string(base) == "null" { // the key did not exist
		base = nil
	}
	merge := func(old json.RawMessage) (json.RawMessage, error) { return Merge(base, value, old), nil }
	c.Base, c.Updates, c.Restored = base, []Update{merge}, true
	return c
}
