// Package secret protects texts from leaking by accident. Printing, logging or encoding a secret yields a
// placeholder (guarantee S8).
package secret

import (
	"crypto/subtle"
	"encoding/json"
	"fmt"
	"log/slog"
	"sync"
)

// Redacted is the placeholder that is shown in place of a secret.
const Redacted = "[REDACTED]"

// Value is a text that only Reveal returns. Printing it with package fmt, encoding it as JSON, YAML or text, and
// logging it with slog or zap all give Redacted. This holds for an empty Value too, and for a Value inside other
// values. The zero Value holds the empty text. It is safe for concurrent use.
//
// An encoded Value cannot be decoded again.
type Value struct {
	// This is a pointer to a pointer because package fmt does not call the methods of a Value in an unexported
	// field. It prints the field itself, and for some verbs what a pointer in the field points to. With two
	// pointers that is an address and not the text.
	content **content
}

// content holds the bytes of a secret. All copies of a Value share it.
type content struct {
	mu   sync.RWMutex
	text []byte // nil once wiped
}

// These are the interfaces that hide the text of a Value. zap and YAML look for their methods by name.
var (
	_ fmt.Formatter  = Value{}
	_ fmt.GoStringer = Value{}
	_ json.Marshaler = Value{}
	_ slog.LogValuer = Value{}
)

// New returns a secret with a copy of the text.
func New(text string) Value {
	h := &content{text: []byte(text)}
	return Value{&h}
}

// Reveal returns the text (empty after Wipe). Call it only where the text is used, because Wipe does not reach the
// returned copy. Elsewhere, pass the Value.
func (v Value) Reveal() string {
	if v.content == nil {
		return ""
	}
	h := *v.content
	h.mu.RLock()
	defer h.mu.RUnlock()
	return string(h.text)
}

// Wipe overwrites the text in all copies of the Value. The code that made the Value calls it when the secret is no
// longer needed. Wipe does not reach texts that Reveal returned.
func (v Value) Wipe() {
	if v.content == nil {
		return
	}
	h := *v.content
	h.mu.Lock()
	defer h.mu.Unlock()
	clear(h.text)
	h.text = nil
}

// Equal reports whether two secrets hold the same text. Its duration does not depend on where the texts differ.
func (v Value) Equal(other Value) bool {
	return subtle.ConstantTimeCompare([]byte(v.Reveal()), []byte(other.Reveal())) == 1
}

// String returns Redacted.
func (Value) String() string { return Redacted }

// GoString returns Redacted.
func (Value) GoString() string { return Redacted }

// Format implements fmt.Formatter. It writes Redacted for every verb.
func (Value) Format(f fmt.State, _ rune) { _, _ = f.Write([]byte(Redacted)) }

// MarshalText returns Redacted.
func (Value) MarshalText() ([]byte, error) { return []byte(Redacted), nil }

// MarshalJSON returns Redacted as a string.
func (Value) MarshalJSON() ([]byte, error) { return json.Marshal(Redacted) }

// MarshalYAML returns Redacted.
func (Value) MarshalYAML() (any, error) { return Redacted, nil }

// LogValue implements slog.LogValuer.
func (Value) LogValue() slog.Value { return slog.StringValue(Redacted) }
