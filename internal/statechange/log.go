package statechange

import (
	"encoding/json"
	"maps"
	"slices"
	"strings"
)

// Log has the changes of state that a turn has made, by key. The zero Log is empty. It is not safe for concurrent use.
type Log struct {
	journaled   map[string]Change // changes that the journal has
	unjournaled map[string]Change // later changes
}

// Value returns the value of a changed key (false if the key was not changed).
func (l Log) Value(key string) (json.RawMessage, bool) {
	change, ok := l.unjournaled[key]
	if !ok {
		change, ok = l.journaled[key]
	}
	return change.Value, ok
}

// All returns the change of each key.
func (l Log) All() map[string]Change {
	all := maps.Clone(l.journaled)
	if all == nil {
		all = map[string]Change{}
	}
	for key, later := range l.unjournaled {
		all[key] = combine(all, key, later)
	}
	return all
}

// Values returns the values of the changed keys. An empty value removes its key.
func (l Log) Values() map[string]json.RawMessage {
	values := make(map[string]json.RawMessage, len(l.journaled)+len(l.unjournaled))
	for _, changes := range []map[string]Change{l.journaled, l.unjournaled} {
		for key, change := range changes {
			values[key] = change.Value
		}
	}
	return values
}

// Clone returns a copy of the log.
func (l Log) Clone() Log {
	return Log{journaled: maps.Clone(l.journaled), unjournaled: maps.Clone(l.unjournaled)}
}

// Add adds a change that the journal does not have.
func (l *Log) Add(key string, c Change) {
	if l.unjournaled == nil {
		l.unjournaled = map[string]Change{}
	}
	l.unjournaled[key] = combine(l.unjournaled, key, c)
}

// Join adds the changes of a fork of the state. before returns the value that a key had when the fork was made. If both
// have changed a key since then, updates of the fork are repeated, and objects are merged key by key, at every depth. For
// any other value the fork wins. Join returns the keys whose value in l was lost.
func (l *Log) Join(fork Log, before func(key string) json.RawMessage) (lost []string) {
	made := fork.All()
	for _, key := range slices.Sorted(maps.Keys(made)) {
		c := made[key]
		if theirs, changed := l.Value(key); changed {
			joined, isLost := c.join(before(key), theirs)
			if c.Value = joined; isLost {
				lost = append(lost, key)
			}
		}
		l.Add(key, c)
	}
	return lost
}

// join returns the value of a key that c and other changes have changed from base. theirs is the value that the others
// made. It also reports whether theirs is lost.
func (c Change) join(base, theirs json.RawMessage) (json.RawMessage, bool) {
	if c.Updates == nil {
		return MergeObjects(base, c.Value, theirs)
	}
	if value, err := c.ApplyTo(theirs); err == nil {
		return value, false
	}
	return Merge(c.Base, c.Value, theirs), false
}

// TakeUnjournaled returns the changes that the journal does not have, and from then on counts them as journaled.
func (l *Log) TakeUnjournaled() Recorded {
	taken := record(l.unjournaled)
	l.journaled, l.unjournaled = l.All(), nil
	return taken
}

// Recorded returns all changes as a journal records them.
func (l Log) Recorded() Recorded { return record(l.All()) }

// Restore adds changes that the journal has. containsUnjournaled says that they contain the unjournaled changes of their
// keys: handlers that run again have made those a second time.
func (l *Log) Restore(r Recorded, containsUnjournaled bool) {
	for key, value := range r.SetValues {
		l.restore(key, r.change(key, value), containsUnjournaled)
	}
	for _, key := range r.Removed {
		l.restore(key, r.change(key, nil), containsUnjournaled)
	}
}

func (l *Log) restore(key string, c Change, containsUnjournaled bool) {
	if unjournaled, ok := l.unjournaled[key]; ok && !containsUnjournaled {
		c = unjournaled.Then(c)
	}
	delete(l.unjournaled, key)
	if l.journaled == nil {
		l.journaled = map[string]Change{}
	}
	l.journaled[key] = combine(l.journaled, key, c)
}

// combine returns the change that follows from a change of the key in all, if there is one, and a later change.
func combine(all map[string]Change, key string, later Change) Change {
	if earlier, ok := all[key]; ok {
		return earlier.Then(later)
	}
	return later
}

// Expected returns the revisions that shared keys must still have when the step is stored. It covers keys that were
// updated, and keys that were set after the turn had read the state. The revision is Unread if the update must first be
// repeated on the stored value.
func (l Log) Expected() map[string]int64 {
	expected := map[string]int64{}
	for key, c := range l.All() {
		switch {
		case !isShared(key):
		case c.Updates != nil && c.Restored:
			expected[key] = Unread
		case c.Updates != nil || c.Revision != Unread:
			expected[key] = c.Revision
		}
	}
	if len(expected) == 0 {
		return nil
	}
	return expected
}

// Rebase applies the changes of the keys in expected to other values and revisions than the expected ones. It also
// returns the keys whose other value is overwritten. An error has the mode of the Update that failed.
func (l Log) Rebase(expected map[string]int64, values map[string]json.RawMessage, revisions map[string]int64) (
	state map[string]json.RawMessage, overwritten []string, _ error,
) {
	state = map[string]json.RawMessage{}
	all := l.All()
	for _, key := range slices.Sorted(maps.Keys(expected)) {
		c := all[key]
		value, err := c.ApplyTo(values[key])
		if err != nil {
			return nil, nil, err
		}
		state[key] = value
		if c.Updates == nil && expected[key] != revisions[key] {
			overwritten = append(overwritten, key)
		}
	}
	return state, overwritten, nil
}

// isShared reports whether sessions share a key (AD-19).
func isShared(key string) bool {
	return strings.HasPrefix(key, "user:") || strings.HasPrefix(key, "app:")
}
