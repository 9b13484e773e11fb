// Package secret keeps texts from leaking by accident: printing, logging or encoding a secret gives a placeholder
// (guarantee S8).
package secret

import (
	"crypto/subtle"
	"encoding/json"
	"fmt"
	"log/slog"
	"sync"
)

// Redacted is what is shown instead of a secret.
const Redacted = "[REDACTED]"

// Value is a text that only Reveal gives away. Printing it with package fmt, encoding it as
// JSON, YAML or text, and logging it with slog or zap all show Redacted, whether or not it
// holds anything, and in whatever it is contained. The zero Value holds the empty text. Safe
// for concurrent use.
//
// It cannot be read back from what it was encoded to: there is no way to decode one.
type Value struct {
	// A pointer: where a Value is an unexported field, package fmt asks no method of it, but
	// prints what it is made of, to a verb that it does not know also what that points to. So
	// that is an address of an address.
	at **held
}

// held are the bytes of a secret, which all copies of a Value share.
type held struct {
	mu   sync.RWMutex
	text []byte // nil once wiped
}

// The ways in which values leave a program that Value has an answer to. zap and YAML find
// the methods that they know by themselves.
var (
	_ fmt.Formatter  = Value{}
	_ fmt.GoStringer = Value{}
	_ json.Marshaler = Value{}
	_ slog.LogValuer = Value{}
)

// New returns the secret with a text, of which it keeps a copy.
func New(text string) Value {
	h := &held{text: []byte(text)}
	return Value{&h}
}

// Reveal returns the text, empty once it was wiped. Call it where the text is used, and hand on the
// Value until then: what it returns is a copy that Wipe does not reach.
func (v Value) Reveal() string {
	if v.at == nil {
		return ""
	}
	h := *v.at
	h.mu.RLock()
	defer h.mu.RUnlock()
	return string(h.text)
}

// Wipe overwrites the text in all copies of the Value. The maker of the Value calls it when the secret is no longer needed. It
// does not reach texts that Reveal returned, which Go frees as garbage.
func (v Value) Wipe() {
	if v.at == nil {
		return
	}
	h := *v.at
	h.mu.Lock()
	defer h.mu.Unlock()
	clear(h.text)
	h.text = nil
}

// Equal reports whether two secrets hold the same text, in a time that does not depend on
// where they differ.
func (v Value) Equal(other Value) bool {
	return subtle.ConstantTimeCompare([]byte(v.Reveal()), []byte(other.Reveal())) == 1
}

// String returns Redacted.
func (Value) String() string { return Redacted }

// GoString returns Redacted.
func (Value) GoString() string { return Redacted }

// Format implements fmt.Formatter: it writes Redacted for every verb that asks.
func (Value) Format(f fmt.State, _ rune) { _, _ = f.Write([]byte(Redacted)) }

// MarshalText returns Redacted.
func (Value) MarshalText() ([]byte, error) { return []byte(Redacted), nil }

// MarshalJSON returns Redacted as a string.
func (Value) MarshalJSON() ([]byte, error) { return json.Marshal(Redacted) }

// MarshalYAML returns Redacted.
func (Value) MarshalYAML() (any, error) { return Redacted, nil }

// LogValue implements slog.LogValuer.
func (Value) LogValue() slog.Value { return slog.StringValue(Redacted) }
