package failure

import (
	"maps"
	"slices"
	"strings"
	"unicode/utf8"
)

// What is stored and sent of a failure, in bytes: no more than the rules in failure.proto let pass.
// Together the facts have fewer than those would: failures are in lists.
const (
	maxOp      = 128
	maxMessage = 4096
	maxFacts   = 32
	maxKey     = 64
	maxValue   = 1024
	maxAll     = 8 << 10 // of all facts
)

// cut is the beginning of a text that fits, without what is no UTF-8.
func cut(text string, bytes int) string {
	if len(text) <= bytes && utf8.ValidString(text) {
		return text
	}
	return strings.ToValidUTF8(text[:min(bytes, len(text))], "")
}

// bounded are the facts that fit, those of the run first, and then by their keys. Values are cut, but
// a key that is too long says nothing once it is cut.
func bounded(facts map[string]string) map[string]string {
	fit, all := len(facts) <= maxFacts, 0
	for key, value := range facts {
		fit = fit && cut(key, maxKey) == key && cut(value, maxValue) == value
		all += len(key) + len(value)
	}
	if fit && all <= maxAll {
		return facts
	}
	keys := []string{FactStage, FactTrace, FactRoot}
	for _, key := range slices.Sorted(maps.Keys(facts)) {
		if !slices.Contains(keys, key) && cut(key, maxKey) == key {
			keys = append(keys, key)
		}
	}
	out, left := map[string]string{}, maxAll
	for _, key := range keys {
		value, ok := facts[key]
		value = cut(value, maxValue)
		if size := len(key) + len(value); ok && size <= left && len(out) < maxFacts {
			out[key] = value
			left -= size
		}
	}
	return out
}
