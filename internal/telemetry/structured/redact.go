package structured

import (
	"strings"

	"github.com/troupe-dev/troupe/pkg/conversation"
)

// Redacted is logged in place of a secret.
const Redacted = "[REDACTED]"

// secretWords are the words that make a key look like the name of a secret.
var secretWords = []string{"secret", "token", "password", "api_key", "credential", "auth", "bearer"}

// maxLengths limits the length of texts, in characters, by key.
var maxLengths = map[string]int{"goal": 200, "reason": 500}

// Redact returns a copy of the data with secrets redacted and long texts cut, at any depth of maps and lists. It
// ignores case in keys, and matches words that are joined by a hyphen, an underscore or nothing.
func Redact(data map[string]any) map[string]any {
	out := make(map[string]any, len(data))
	for key, value := range data {
		out[key] = redactValue(key, value)
	}
	return out
}

func redactValue(key string, value any) any {
	if IsSecret(key) {
		return Redacted
	}
	switch v := value.(type) {
	case map[string]any:
		return Redact(v)
	case map[string]string:
		out := make(map[string]any, len(v))
		for k, text := range v {
			out[k] = redactValue(k, text)
		}
		return out
	case []any:
		out := make([]any, len(v))
		for i, item := range v {
			out[i] = redactValue("", item)
		}
		return out
	case string:
		if most, ok := maxLengths[strings.ToLower(key)]; ok {
			return conversation.Excerpt(v, most)
		}
	}
	return value
}

// IsSecret reports whether a key looks like the name of a secret.
func IsSecret(key string) bool {
	key = strings.ToLower(strings.ReplaceAll(key, "-", "_"))
	bare := strings.ReplaceAll(key, "_", "")
	for _, word := range secretWords {
		if strings.Contains(key, word) || strings.Contains(bare, strings.ReplaceAll(word, "_", "")) {
			return true
		}
	}
	return false
}
