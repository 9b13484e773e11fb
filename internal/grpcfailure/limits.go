package grpcfailure

import (
	"maps"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/troupe-dev/troupe/pkg/failure"
)

// These limits apply to a failure that is stored or sent, in bytes unless noted. Texts and keys have the limits of
// failure.proto. The limit for all facts together is lower than the sum of their own limits, because responses
// contain lists of failures.
const (
	maxOpBytes        = 128
	maxMessageBytes   = 4096
	maxFacts          = 32
	maxFactKeyBytes   = 64
	maxFactValueBytes = 1024
	maxFactsBytes     = 8 << 10 // limit for all facts together
)

// cutText cuts a text to at most the given number of bytes, and removes invalid UTF-8 from it.
func cutText(text string, bytes int) string {
	if len(text) <= bytes && utf8.ValidString(text) {
		return text
	}
	return strings.ToValidUTF8(text[:min(bytes, len(text))], "")
}

// cutFacts returns as many facts as fit, with long values cut. Facts about the run are kept first, and then the
// others in the order of their keys.
func cutFacts(facts map[string]string) map[string]string {
	fit, all := len(facts) <= maxFacts, 0
	for key, value := range facts {
		fit = fit && cutText(key, maxFactKeyBytes) == key && cutText(value, maxFactValueBytes) == value
		all += len(key) + len(value)
	}
	if fit && all <= maxFactsBytes {
		return facts
	}
	keys := []string{failure.FactStage, failure.FactTrace, failure.FactRoot}
	for _, key := range slices.Sorted(maps.Keys(facts)) {
		if !slices.Contains(keys, key) && cutText(key, maxFactKeyBytes) == key {
			keys = append(keys, key)
		}
	}
	out, left := map[string]string{}, maxFactsBytes
	for _, key := range keys {
		value, ok := facts[key]
		value = cutText(value, maxFactValueBytes)
		if size := len(key) + len(value); ok && size <= left && len(out) < maxFacts {
			out[key] = value
			left -= size
		}
	}
	return out
}
