package statechange

import (
	"bytes"
	"encoding/json"
	"math"
	"slices"
	"strconv"

	"github.com/troupe-dev/troupe/pkg/failure"
)

const op = "hook.Memory"

// Increment returns the update that adds by to an integer. sum gets the result.
func Increment(key string, by int64, sum *int64) Update {
	return func(old json.RawMessage) (json.RawMessage, error) {
		n := int64(0)
		if len(old) > 0 && json.Unmarshal(old, &n) != nil {
			return nil, newTypeError(key, "an integer")
		}
		if by > 0 && n > math.MaxInt64-by || by < 0 && n < math.MinInt64-by {
			return nil, failure.Newf(failure.UserInvalidInput, op, "state %q: %d plus %d is too large; an integer has 64 bits", key, n, by)
		}
		*sum = n + by
		return strconv.AppendInt(nil, n+by, 10), nil
	}
}

// AddToSet returns the update that adds members to a set.
func AddToSet(key string, members []string) Update {
	return changeSet(key, func(set []string) []string { return append(set, members...) })
}

// RemoveFromSet returns the update that removes members from a set.
func RemoveFromSet(key string, members []string) Update {
	return changeSet(key, func(set []string) []string {
		return slices.DeleteFunc(set, func(member string) bool { return slices.Contains(members, member) })
	})
}

// changeSet returns the update that changes the members of a set, which stays sorted and without duplicates.
func changeSet(key string, change func(set []string) []string) Update {
	return func(old json.RawMessage) (json.RawMessage, error) {
		set := []string{}
		if len(old) > 0 && json.Unmarshal(old, &set) != nil {
			return nil, newTypeError(key, "an array of texts")
		}
		set = change(set)
		slices.Sort(set)
		return json.Marshal(slices.Compact(set))
	}
}

// Patch returns the update that merges an object into another one.
func Patch(key string, patch any) (Update, error) {
	text, err := json.Marshal(patch)
	if err != nil {
		return nil, NewUnencodableError(key, err)
	}
	if !isObject(text) {
		return nil, failure.Newf(failure.UserInvalidInput, op, "state %q: the patch is no JSON object; use Set for other values", key)
	}
	return func(old json.RawMessage) (json.RawMessage, error) {
		if len(old) > 0 && !isObject(old) {
			return nil, newTypeError(key, "an object")
		}
		return applyPatch(old, text)
	}, nil
}

// applyPatch returns the value that a merge patch makes of a value (RFC 7396, section 2).
func applyPatch(value, patch json.RawMessage) (json.RawMessage, error) {
	if !isObject(patch) {
		return patch, nil
	}
	var changed map[string]json.RawMessage
	members := map[string]json.RawMessage{}
	if err := json.Unmarshal(patch, &changed); err != nil {
		return nil, err
	}
	if isObject(value) {
		if err := json.Unmarshal(value, &members); err != nil {
			return nil, err
		}
	}
	for name, change := range changed {
		if string(change) == "null" {
			delete(members, name)
			continue
		}
		merged, err := applyPatch(members[name], change)
		if err != nil {
			return nil, err
		}
		members[name] = merged
	}
	return json.Marshal(members)
}

func isObject(value json.RawMessage) bool {
	return bytes.HasPrefix(bytes.TrimSpace(value), []byte("{"))
}

// NewUnencodableError returns the error for a value without a JSON form. Its mode is user_invalid_input.
func NewUnencodableError(key string, cause error) error {
	return failure.Newf(failure.UserInvalidInput, op, "state %q: the value cannot be written as JSON", key).Because(cause)
}

func newTypeError(key, want string) error {
	return failure.Newf(failure.UserInvalidInput, op, "state %q: the value is not %s; use Set to replace it", key, want)
}
