// Package broker lets a process receive a secret through others that must not learn it. It makes a key for each
// secret, which lives for a short time in the RAM of the process only. The sender seals the secret to that key
// (LP-37). On the way, in every store and in every log, there is only the sealed form.
//
// It uses HPKE (RFC 9180) in base mode. The sealed form is bound to its key and session, and opens for no
// other.
package broker

import (
	"crypto/ecdh"
	"crypto/hpke"
	"crypto/rand"
	"strings"
	"sync"
	"time"
	"unicode/utf8"

	"github.com/troupe-dev/troupe/pkg/execution"
	"github.com/troupe-dev/troupe/pkg/failure"
	"github.com/troupe-dev/troupe/pkg/secret"
)

// Lifetime is how long a key lives unless it is forgotten earlier.
const Lifetime = 15 * time.Minute

// Limits of a Broker and of what is sealed.
const (
	MaxSecret = 16 << 10        // bytes of a secret
	MaxSealed = MaxSecret + 256 // bytes of a secret that is sealed
	maxKeys   = 1 << 12         // of one Broker at once
)

// Broker makes keys and opens what is sealed to them. Its keys never leave the process. It is safe for
// concurrent use.
type Broker struct {
	instance string

	mu   sync.Mutex
	keys map[string]*pendingKey
}

// pendingKey is a private key that waits for its secret.
type pendingKey struct {
	private hpke.PrivateKey
	session string
	name    string
	end     *time.Timer
}

// Key is the public half of a key, for the holder of the secret.
type Key struct {
	ID      string // unique
	Public  []byte // of X25519
	Expires time.Time
}

// maxInstance is the longest id of an instance.
const maxInstance = 128

// New returns the broker of an instance, whose id becomes a part of each key's id. An invalid instance id is
// left out.
func New(instance string) *Broker {
	if len(instance) > maxInstance || !utf8.ValidString(instance) {
		instance = ""
	}
	return &Broker{instance: instance, keys: map[string]*pendingKey{}}
}

// Instance returns the id of the instance that holds a key ("" if the key's id does not name it).
func Instance(id string) string {
	_, instance, _ := strings.Cut(id, "@")
	return instance
}

// Ask makes a key for the secret with the name, for one session. Modes: resource_quota if too many keys live.
func (b *Broker) Ask(session, name string) (Key, error) {
	private, err := kem().GenerateKey()
	if err != nil {
		return Key{}, err
	}
	k := Key{ID: rand.Text() + "@" + b.instance, Public: private.PublicKey().Bytes(), Expires: time.Now().Add(Lifetime)}
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(b.keys) >= maxKeys {
		return Key{}, failure.Newf(failure.ResourceQuota, "broker.Ask",
			"%d calls wait for a credential here already, as many as may within %s; try again later", maxKeys, Lifetime)
	}
	h := &pendingKey{private: private, session: session, name: name}
	h.end = time.AfterFunc(Lifetime, func() { b.Forget(k.ID) })
	b.keys[k.ID] = h
	return k, nil
}

// Open returns a secret that was sealed to the key with the id, and the name that it was asked for. The key
// stays, so that a later attempt can open it again. Modes: not_found if the key has expired, was forgotten or
// belongs to another process; user_invalid_input if the text was sealed to another key or session.
func (b *Broker) Open(id, session string, sealed []byte) (name string, _ secret.Value, err error) {
	const op = "broker.Open"
	b.mu.Lock()
	h := b.keys[id]
	b.mu.Unlock()
	if h == nil {
		return "", secret.Value{}, failure.New(failure.NotFound, op,
			"the key that it was sealed to is gone: it lives for 15 minutes, and no longer than the process that made it")
	}
	wrong := func(cause error) error {
		return failure.New(failure.UserInvalidInput, op, "it was not sealed to the key of this call; seal it to the one that the call shows").Because(cause)
	}
	if h.session != session {
		return "", secret.Value{}, wrong(nil)
	}
	text, err := hpke.Open(h.private, hpke.HKDFSHA256(), hpke.AES256GCM(), bindingInfo(id, session), sealed)
	if err == nil && (len(text) > MaxSecret || !utf8.Valid(text)) {
		return "", secret.Value{}, failure.Newf(failure.UserInvalidInput, op, "the credential is no UTF-8 of at most %d bytes", MaxSecret)
	}
	if err != nil {
		return "", secret.Value{}, wrong(err)
	}
	return h.name, secret.New(string(text)), nil
}

// Forget deletes a key early. It is no error if the key does not exist.
func (b *Broker) Forget(id string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if h := b.keys[id]; h != nil {
		h.end.Stop()
		delete(b.keys, id)
	}
}

// Seal seals a secret to a key of a session, so that only its broker can open it. Modes: user_invalid_input if
// the secret is empty, too long or no UTF-8, or if the key is invalid.
func Seal(id, session string, public []byte, s secret.Value) ([]byte, error) {
	const op = "broker.Seal"
	text := s.Reveal()
	if text == "" || len(text) > MaxSecret || !utf8.ValidString(text) {
		return nil, failure.Newf(failure.UserInvalidInput, op, "credential: want 1 to %d bytes of UTF-8; encode bytes, for example as base64", MaxSecret)
	}
	key, err := kem().NewPublicKey(public)
	if err == nil {
		var sealed []byte
		if sealed, err = hpke.Seal(key, hpke.HKDFSHA256(), hpke.AES256GCM(), bindingInfo(id, session), []byte(text)); err == nil {
			return sealed, nil
		}
	}
	return nil, failure.New(failure.UserInvalidInput, op, "public_key: it is none of X25519; take it from the call that waits as it is").Because(err)
}

func kem() hpke.KEM { return hpke.DHKEM(ecdh.X25519()) }

// bindingInfo binds the sealed form to a key and a session. Ids hold no zero byte, so the parts cannot be
// confused.
func bindingInfo(id, session string) []byte {
	return []byte("troupe.v1 auth\x00" + id + "\x00" + session)
}

// Session is the broker of one session. It implements execution.CredentialBroker for code that may not choose the
// session.
type Session struct {
	broker *Broker
	id     string
}

var _ execution.CredentialBroker = (*Session)(nil)

// For returns the broker for a session.
func (b *Broker) For(session string) *Session { return &Session{b, session} }

// Ask makes a key as Broker.Ask does.
func (s *Session) Ask(name string) (execution.PendingAuth, error) {
	key, err := s.broker.Ask(s.id, name)
	return execution.PendingAuth{Login: execution.Login{Name: name}, ID: key.ID, Key: key.Public, Expires: key.Expires}, err
}

// Open opens a sealed credential as Broker.Open does.
func (s *Session) Open(id string, sealed []byte) (string, secret.Value, error) {
	return s.broker.Open(id, s.id, sealed)
}
