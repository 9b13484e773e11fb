package statechange

import (
	"bytes"
	"encoding/json"
	"math/big"
	"slices"
)

// Merge returns the value of a key that one writer has changed from base to mine and another one to theirs. Objects are
// merged key by key, at every depth. For numbers, both differences are added to base. For arrays, the result has what
// either writer added, and lacks what either removed. For any other value mine wins. An empty value means that the key
// does not exist.
func Merge(base, mine, theirs json.RawMessage) json.RawMessage {
	switch {
	case equal(theirs, base):
		return mine
	case equal(mine, base):
		return theirs
	}
	if merged, ok := mergeNumbers(base, mine, theirs); ok {
		return merged
	}
	if merged, ok := mergeArrays(base, mine, theirs); ok {
		return merged
	}
	if merged, ok := mergeObjects(base, mine, theirs, Merge); ok {
		return merged
	}
	return mine
}

// MergeObjects returns the value of a key that two tools have set independently of each other. Objects are merged key by
// key, at every depth. For any other value mine wins, and MergeObjects reports that theirs was lost. base is the value
// before both.
func MergeObjects(base, mine, theirs json.RawMessage) (merged json.RawMessage, lost bool) {
	switch {
	case equal(theirs, base) || equal(mine, theirs):
		return mine, false
	case equal(mine, base):
		return theirs, false
	}
	member := func(base, mine, theirs json.RawMessage) json.RawMessage {
		m, l := MergeObjects(base, mine, theirs)
		lost = lost || l
		return m
	}
	if merged, ok := mergeObjects(base, mine, theirs, member); ok {
		return merged, lost
	}
	return mine, true
}

// mergeObjects merges the members of two objects. It returns false unless mine and theirs are objects. A base that is
// not an object counts as empty.
func mergeObjects(base, mine, theirs json.RawMessage, member func(base, mine, theirs json.RawMessage) json.RawMessage) (json.RawMessage, bool) {
	var b, m, t map[string]json.RawMessage
	if json.Unmarshal(mine, &m) != nil || json.Unmarshal(theirs, &t) != nil || m == nil || t == nil {
		return nil, false
	}
	_ = json.Unmarshal(base, &b)
	merged := map[string]json.RawMessage{}
	for _, from := range []map[string]json.RawMessage{m, t} {
		for key := range from {
			if value := member(b[key], m[key], t[key]); len(value) > 0 {
				merged[key] = value
			}
		}
	}
	text, err := json.Marshal(merged)
	return text, err == nil
}

// mergeNumbers adds the difference between mine and base to theirs. A key that did not exist counts as 0.
func mergeNumbers(base, mine, theirs json.RawMessage) (json.RawMessage, bool) {
	b, m, t := new(big.Rat), new(big.Rat), new(big.Rat)
	if len(base) > 0 && !parseNumber(base, b) || !parseNumber(mine, m) || !parseNumber(theirs, t) {
		return nil, false
	}
	sum := t.Add(t, m.Sub(m, b))
	if sum.IsInt() {
		return json.RawMessage(sum.Num().String()), true
	}
	n, _ := sum.Float64()
	text, err := json.Marshal(n)
	return text, err == nil
}

func parseNumber(text json.RawMessage, into *big.Rat) bool {
	var n json.Number
	if bytes.HasPrefix(text, []byte(`"`)) || json.Unmarshal(text, &n) != nil || n == "" || len(n) > 40 {
		return false
	}
	if f, err := n.Float64(); err != nil || f > 1e18 || f < -1e18 {
		return false // the exact number could have very many digits
	}
	_, ok := into.SetString(n.String())
	return ok
}

// mergeArrays applies the changes between base and mine to theirs: it removes the elements that mine no longer has, and
// appends the ones that are new in mine.
func mergeArrays(base, mine, theirs json.RawMessage) (json.RawMessage, bool) {
	var b, m, t []json.RawMessage
	if json.Unmarshal(mine, &m) != nil || json.Unmarshal(theirs, &t) != nil || m == nil || t == nil {
		return nil, false
	}
	_ = json.Unmarshal(base, &b)
	has := func(all []json.RawMessage, one json.RawMessage) bool {
		return slices.ContainsFunc(all, func(other json.RawMessage) bool { return equal(one, other) })
	}
	merged := slices.DeleteFunc(t, func(one json.RawMessage) bool { return has(b, one) && !has(m, one) })
	for _, one := range m {
		if !has(b, one) && !has(merged, one) {
			merged = append(merged, one)
		}
	}
	text, err := json.Marshal(merged)
	return text, err == nil
}

// equal reports whether two values are the same JSON text, apart from white space.
func equal(a, b json.RawMessage) bool {
	return bytes.Equal(a, b) || bytes.Equal(compact(a), compact(b))
}

func compact(value json.RawMessage) []byte {
	var text bytes.Buffer
	if json.Compact(&text, value) != nil {
		return value
	}
	return text.Bytes()
}
