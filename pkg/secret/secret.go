// Package secret is a text that does not get out by accident: whoever prints, logs or
// encodes it gets a placeholder (guarantee S8).
package secret

import (
	"crypto/subtle"
	"encoding/json"
	"fmt"
	"log/slog"
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
	// prints what it is made of. So that is an address.
	text *string
}

// The ways in which values leave a program that Value has an answer to. zap and YAML find
// the methods that they know by themselves.
var (
	_ fmt.Formatter  = Value{}
	_ fmt.GoStringer = Value{}
	_ json.Marshaler = Value{}
	_ slog.LogValuer = Value{}
)

// New returns the secret with a text.
func New(text string) Value { return Value{&text} }

// Reveal returns the text. Call it where the text is used, and hand on the Value until then.
func (v Value) Reveal() string {
	if v.text == nil {
		return ""
	}
	return *v.text
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
