// Package broker lets a process receive a secret through other processes that must not learn it. It creates a key
// for each secret and keeps the private key in memory for a short time. The sender seals the secret to the public
// key (LP-37). Only the sealed form is transmitted, stored or logged.
//
// The package uses HPKE (RFC 9180) in base mode. A sealed secret is bound to its key and session, and cannot be
// opened with any other.
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

// Lifetime is how long a key is kept, unless Forget deletes it earlier.
const Lifetime = 15 * time.Minute

// These limits apply to a Broker and to sealed secrets.
const (
	MaxSecretBytes = 16 << 10             // bytes of a secret
	MaxSealedBytes = MaxSecretBytes + 256 // bytes of a sealed secret
	maxKeys        = 1 << 12              // keys of one Broker at the same time
)

// Broker creates keys and opens the secrets sealed to them. Private keys never leave the process. Broker is safe
// for concurrent use.
type Broker struct {
	instance string

	mu   sync.Mutex
	keys map[string]*pendingKey
}

// pendingKey is a private key whose secret has not been received yet, or may be opened again.
type pendingKey struct {
	private    hpke.PrivateKey
	session    string
	secretName string
	expiry     *time.Timer // deletes the key after its Lifetime
}

// Key is the public half of a key. It is sent to the holder of the secret.
type Key struct {
	ID      string // unique
	Public  []byte // X25519 public key
	Expires time.Time
}

// maxInstanceIDBytes limits the length of an instance id.
const maxInstanceIDBytes = 128

// New returns the broker of an instance. The instance id becomes a part of each key's id, unless it is invalid.
func New(instance string) *Broker {
	if len(instance) > maxInstanceIDBytes || !utf8.ValidString(instance) {
		instance = ""
	}
	return &Broker{instance: instance, keys: map[string]*pendingKey{}}
}

// InstanceFromKeyID returns the id of the instance that holds the key ("" if the key id contains none).
func InstanceFromKeyID(id string) string {
	_, instance, _ := strings.Cut(id, "@")
	return instance
}

// CreateKey creates a key for the named secret in one session. Modes: resource_quota if too many keys exist.
func (b *Broker) CreateKey(session, name string) (Key, error) {
	private, err := kem().GenerateKey()
	if err != nil {
		return Key{}, err
	}
	k := Key{ID: rand.Text() + "@" + b.instance, Public: private.PublicKey().Bytes(), Expires: time.Now().Add(Lifetime)}
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(b.keys) >= maxKeys {
		return Key{}, failure.Newf(failure.ResourceQuota, "broker.Ask",
			"%d calls already wait for a credential, the maximum within %s; try again later", maxKeys, Lifetime)
	}
	h := &pendingKey{private: private, session: session, secretName: name}
	h.expiry = time.AfterFunc(Lifetime, func() { b.Forget(k.ID) })
	b.keys[k.ID] = h
	return k, nil
}

// Open returns a secret that was sealed to the key with the given id, and the name of the secret. The key is kept,
// so that a later attempt can open the secret again. Modes: not_found if the key has expired, was deleted or
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
	if err == nil && (len(text) > MaxSecretBytes || !utf8.Valid(text)) {
		return "", secret.Value{}, failure.Newf(failure.UserInvalidInput, op, "the credential is not UTF-8 of at most %d bytes", MaxSecretBytes)
	}
	if err != nil {
		return "", secret.Value{}, wrong(err)
	}
	return h.secretName, secret.New(string(text)), nil
}

// Forget deletes a key before it expires. Forgetting an unknown key is not an error.
func (b *Broker) Forget(id string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if h := b.keys[id]; h != nil {
		h.expiry.Stop()
		delete(b.keys, id)
	}
}

// Seal seals a secret to a key and a session, so that only the broker that holds the key can open it. Modes:
// user_invalid_input if the secret is empty, too long or not UTF-8, or if the key is invalid.
func Seal(id, session string, public []byte, s secret.Value) ([]byte, error) {
	const op = "broker.Seal"
	text := s.Reveal()
	if text == "" || len(text) > MaxSecretBytes || !utf8.ValidString(text) {
		return nil, failure.Newf(failure.UserInvalidInput, op, "credential: want 1 to %d bytes of UTF-8; encode bytes, for example as base64", MaxSecretBytes)
	}
	key, err := kem().NewPublicKey(public)
	if err == nil {
		var sealed []byte
		if sealed, err = hpke.Seal(key, hpke.HKDFSHA256(), hpke.AES256GCM(), bindingInfo(id, session), []byte(text)); err == nil {
			return sealed, nil
		}
	}
	return nil, failure.New(failure.UserInvalidInput, op, "public_key: it is not an X25519 key; copy it unchanged from the waiting call").Because(err)
}

func kem() hpke.KEM { return hpke.DHKEM(ecdh.X25519()) }

// bindingInfo returns the HPKE info that binds a sealed secret to its key and session. Ids contain no zero byte,
// so the concatenation is unambiguous.
func bindingInfo(id, session string) []byte {
	return []byte("troupe.v1 auth\x00" + id + "\x00" + session)
}

// SessionBroker gives access to a broker for one session only. It implements execution.CredentialBroker for code
// that may not choose the session.
type SessionBroker struct {
	broker *Broker
	id     string
}

var _ execution.CredentialBroker = (*SessionBroker)(nil)

// ForSession returns the broker restricted to one session.
func (b *Broker) ForSession(session string) *SessionBroker { return &SessionBroker{b, session} }

// Ask creates a key for the session, as Broker.CreateKey does.
func (s *SessionBroker) Ask(name string) (execution.PendingAuth, error) {
	key, err := s.broker.CreateKey(s.id, name)
	return execution.PendingAuth{Login: execution.Login{Name: name}, ID: key.ID, Key: key.Public, Expires: key.Expires}, err
}

// Open opens a sealed secret of the session, as Broker.Open does.
func (s *SessionBroker) Open(id string, sealed []byte) (string, secret.Value, error) {
	return s.broker.Open(id, s.id, sealed)
}
