package structured

import (
	"strings"

	"github.com/troupe-dev/troupe/pkg/conversation"
)

// Redacted stands for a value that must not be read.
const Redacted = "[REDACTED]"

// secrets are parts of keys whose values are redacted, whatever they are.
var secrets = []string{"secret", "token", "password", "api_key", "credential", "auth", "bearer"}

// cuts are how many characters of a text are shown, by key.
var cuts = map[string]int{"goal": 200, "reason": 500}

// Redact returns a copy of the data without secrets and with long texts cut, at any depth of
// maps and lists. Case, and whether a hyphen or nothing stands for an underscore, make no
// difference to a key.
func Redact(data map[string]any) map[string]any {
	out := make(map[string]any, len(data))
	for key, value := range data {
		out[key] = redacted(key, value)
	}
	return out
}

func redacted(key string, value any) any {
	if IsSecret(key) {
		return Redacted
	}
	switch v := value.(type) {
	case map[string]any:
		return Redact(v)
	case map[string]string:
		out := make(map[string]any, len(v))
		for k, text := range v {
			out[k] = redacted(k, text)
		}
		return out
	case []any:
		out := make([]any, len(v))
		for i, item := range v {
			out[i] = redacted("", item)
		}
		return out
	case string:
		if most, ok := cuts[strings.ToLower(key)]; ok {
			return conversation.Brief(v, most)
		}
	}
	return value
}

// IsSecret reports whether a key sounds like that of a secret.
func IsSecret(key string) bool {
	key = strings.ToLower(strings.ReplaceAll(key, "-", "_"))
	bare := strings.ReplaceAll(key, "_", "")
	for _, word := range secrets {
		if strings.Contains(key, word) || strings.Contains(bare, strings.ReplaceAll(word, "_", "")) {
			return true
		}
	}
	return false
}
