package statechange_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/troupe-dev/troupe/internal/statechange"
)

func raw(text string) json.RawMessage { return json.RawMessage(text) }

// Req: AD-36
func TestMerge(t *testing.T) {
	for _, m := range []struct{ base, mine, theirs, merged string }{
		{"5", "6", "5", "6"},
		{"5", "5", "9", "9"},
		{"5", "6", "9", "10"},
		{"", "1", "1", "2"},
		{"5", "6", "6", "7"},
		{`"a"`, `"b"`, `"b"`, `"b"`},
		{`["a"]`, `["a","b"]`, `["a","b"]`, `["a","b"]`},
		{"", "2", "3", "5"},
		{"0.1", "0.3", "0.5", "0.7"},
		{"9007199254740993", "9007199254740994", "9007199254740995", "9007199254740996"},
		{`["a","b"]`, `["a","c"]`, `["a","b","d"]`, `["a","d","c"]`},
		{"", `["a"]`, `["b"]`, `["b","a"]`},
		{`{"a":1,"b":1}`, `{"a":2,"b":1}`, `{"a":1,"b":5,"c":1}`, `{"a":2,"b":5,"c":1}`},
		{`{"a":{"x":1,"y":1}}`, `{"a":{"x":3,"y":1}}`, `{"a":{"x":2}}`, `{"a":{"x":4}}`},
		{`{"a":1}`, `{}`, `{"a":1,"b":2}`, `{"b":2}`},
		{`"a"`, `"b"`, `"c"`, `"b"`},
		{`"a"`, "", `"c"`, ""},
		{"5", "6", `"text"`, "6"},
		{"null", "1", "2", "1"},
		{"1e300", "2e300", "3e300", "2e300"},
	} {
		require.Equal(t, m.merged, string(statechange.Merge(raw(m.base), raw(m.mine), raw(m.theirs))), "%v", m)
	}
}

// Req: AD-36
func TestMergeObjects(t *testing.T) {
	for _, m := range []struct {
		base, mine, theirs, merged string
		lost                       bool
	}{
		{"", `{"a":1}`, `{"b":2}`, `{"a":1,"b":2}`, false},
		{`{"a":{"x":1}}`, `{"a":{"x":1,"y":2}}`, `{"a":{"x":1,"z":3}}`, `{"a":{"x":1,"y":2,"z":3}}`, false},
		{`{"a":1}`, `{"a":2}`, `{"a":3}`, `{"a":2}`, true},
		{`{"a":1}`, `{"a":2}`, `{"a":1,"b":1}`, `{"a":2,"b":1}`, false},
		{"1", "2", "3", "2", true},
		{"1", "2", "2", "2", false},
		{"1", "2", "1", "2", false},
		{"1", "1", "3", "3", false},
		{"[1]", "[1,2]", "[1,3]", "[1,2]", true},
	} {
		merged, lost := statechange.MergeObjects(raw(m.base), raw(m.mine), raw(m.theirs))
		require.Equal(t, m.merged, string(merged), "%v", m)
		require.Equal(t, m.lost, lost, "%v", m)
	}
}

// increment is an update that adds 1.
func increment(old json.RawMessage) (json.RawMessage, error) {
	n, _ := strconv.Atoi(string(old)) // 0 if the key does not exist
	return fmt.Append(nil, n+1), nil
}

func newIncrement(base, value string, revision int64) statechange.Change {
	return statechange.Change{Value: raw(value), Base: raw(base), Updates: []statechange.Update{increment}, Revision: revision}
}

func TestChange_Then(t *testing.T) {
	set := statechange.Change{Value: raw("9"), Revision: 3}
	apply := func(c statechange.Change) string {
		value, err := c.ApplyTo(raw("100"))
		require.NoError(t, err)
		return string(value)
	}
	require.Equal(t, "102", apply(newIncrement("1", "2", 3).Then(newIncrement("2", "3", 3))))
	require.Equal(t, "9", apply(newIncrement("1", "2", 3).Then(set)))
	after := set.Then(newIncrement("9", "10", 3))
	require.Equal(t, "10", apply(after), "what follows a value that was set does not depend on the store")
	require.Nil(t, after.Updates)
}

// Req: AD-18
func TestLog_ExpectsWhatTheTurnHasRead(t *testing.T) {
	var l statechange.Log
	require.Nil(t, l.Expected())
	l.Add("own", newIncrement("1", "2", 3))
	l.Add("user:updated", newIncrement("5", "6", 5))
	l.Add("user:unread", newIncrement("5", "6", statechange.Unread))
	l.Add("user:set", statechange.Change{Value: raw("6"), Revision: 4})
	l.Add("app:set", statechange.Change{Value: raw("6"), Revision: statechange.Unread})
	l.Restore(statechange.Recorded{
		SetValues: map[string]json.RawMessage{"app:restored": raw("6")}, Bases: map[string]json.RawMessage{"app:restored": raw("5")},
	}, true)
	expected := l.Expected()
	require.Equal(t, map[string]int64{"user:updated": 5, "user:unread": statechange.Unread, "user:set": 4, "app:restored": statechange.Unread}, expected)

	nine := map[string]json.RawMessage{"user:updated": raw("9"), "user:unread": raw("9"), "user:set": raw("9"), "app:set": raw("9"), "app:restored": raw("9")}
	state, overwritten, err := l.Rebase(expected, nine, map[string]int64{"user:updated": 8, "user:set": 8})
	require.NoError(t, err)
	require.Equal(t, map[string]json.RawMessage{"user:updated": raw("10"), "user:unread": raw("10"), "user:set": raw("6"), "app:restored": raw("10")}, state)
	require.Equal(t, []string{"user:set"}, overwritten)

	failing := newIncrement("5", "6", 5)
	failing.Updates = append(failing.Updates, func(json.RawMessage) (json.RawMessage, error) { return nil, errors.New("oh") })
	l.Add("user:updated", failing)
	_, _, err = l.Rebase(expected, nine, nil)
	require.ErrorContains(t, err, "oh")
}
