package trust

import (
	"cmp"
	"crypto/ed25519"
	"encoding/hex"
	"fmt"
	"regexp"
	"strconv"
	"time"

	"github.com/troupe-dev/troupe/pkg/failure"
)

const keyPrefix = "ed25519:"

// Request is the request that a signature covers.
type Request struct {
	Agent string    // name of the agent, so that no other agent accepts it
	Text  string    // the whole text, byte for byte
	Time  time.Time // when the request was made, to the millisecond
}

// canonical returns the unique encoding of r. Each field is encoded as its length in bytes, a colon, the bytes and a comma.
// The first field is a tag that no other protocol signs. Time is in milliseconds since 1970, in decimal.
func (r Request) canonical() []byte {
	var b []byte
	for _, field := range []string{"troupe.request.v1", r.Agent, strconv.FormatInt(r.Time.UnixMilli(), 10), r.Text} {
		b = fmt.Appendf(b, "%d:%s,", len(field), field)
	}
	return b
}

// Signature proves who made a request, and when. A client sends the text form of the signature together with the
// text of the request.
type Signature struct {
	Key   ed25519.PublicKey
	Time  time.Time // time of the request, to the millisecond
	Value []byte
}

// Sign signs r with a key of crypto/ed25519. Equal requests of the same millisecond have equal signatures, and a gate
// accepts only the first of them.
func Sign(key ed25519.PrivateKey, r Request) Signature {
	public := ed25519.PublicKey(key[len(key)-ed25519.PublicKeySize:])
	return Signature{Key: public, Time: r.Time, Value: ed25519.Sign(key, r.canonical())}
}

// ClientOf returns the name of the client that signs with key: "ed25519:" and the key in hexadecimal.
func ClientOf(key ed25519.PublicKey) string { return keyPrefix + hex.EncodeToString(key) }

// Client returns the name of the signer. It is proven only after Verify has returned nil.
func (s Signature) Client() string { return ClientOf(s.Key) }

// String returns the text form, "ed25519:<key>:<milliseconds since 1970>:<signature>", with key and signature in lower-case
// hexadecimal.
func (s Signature) String() string {
	return fmt.Sprintf("%s:%d:%x", s.Client(), s.Time.UnixMilli(), s.Value)
}

var signatureForm = regexp.MustCompile(`^ed25519:([0-9a-f]{64}):(0|[1-9][0-9]{0,14}):([0-9a-f]{128})$`)

// ParseSignature parses the text form. It rejects capitals, blanks and leading zeros, so that each signature has
// exactly one text form. Modes: policy_security.
func ParseSignature(text string) (Signature, error) {
	fields := signatureForm.FindStringSubmatch(text)
	if fields == nil {
		return Signature{}, failure.New(failure.PolicySecurity, "trust.ParseSignature",
			"the signature is malformed; want ed25519:<key>:<milliseconds>:<signature>")
	}
	key, keyErr := hex.DecodeString(fields[1])
	millis, timeErr := strconv.ParseInt(fields[2], 10, 64)
	value, valueErr := hex.DecodeString(fields[3])
	return Signature{Key: key, Time: time.UnixMilli(millis), Value: value}, cmp.Or(keyErr, timeErr, valueErr)
}

// Verify checks that s signs a request with this text to this agent, and that its time is at most Window from now.
// The error says that the time is wrong only if the signature itself is valid. Verify does not detect replays, but
// a Gate does. Modes: policy_security.
func (s Signature) Verify(agent, text string, now time.Time) error {
	const op = "trust.Verify"
	signed := Request{Agent: agent, Text: text, Time: s.Time}.canonical()
	switch {
	case len(s.Key) != ed25519.PublicKeySize || !ed25519.Verify(s.Key, signed, s.Value):
		return failure.New(failure.PolicySecurity, op, "the signature is not one of this request to this agent")
	case now.Sub(s.Time).Abs() > Window:
		return failure.Newf(failure.PolicySecurity, op,
			"the signature was made more than %v from the time of this agent; check the clock and sign again", Window)
	}
	return nil
}
