package identity

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"os"
	"sync/atomic"
	"time"

	"github.com/spiffe/go-spiffe/v2/bundle/x509bundle"
	"github.com/spiffe/go-spiffe/v2/spiffeid"
	"github.com/spiffe/go-spiffe/v2/svid/x509svid"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"
)

// Source is the identity of a process, and whom it trusts. It looks for new keys at each
// handshake, so that all can be replaced while it runs; while those that lie there cannot be
// used, it goes on with the last that could. Safe for concurrent use. Nil is a process without
// an identity.
type Source struct {
	renewed[*keys]

	id     ID
	signer atomic.Pointer[verified] // the last one
}

// keys are what a process proves itself with, and what it asks of others.
type keys struct {
	id   ID
	pair tls.Certificate
	cas  *x509bundle.Bundle
	from texts // of the files that they were read from
}

func (k *keys) leaf() *x509.Certificate { return k.pair.Leaf }

// Life is for how long the certificate is valid in all, from its beginning to its end.
func (s *Source) Life() time.Duration {
	leaf := s.current().leaf()
	return leaf.NotAfter.Sub(leaf.NotBefore)
}

// Measure tells a meter for how long the certificate is still valid, in seconds: somebody must
// renew it before that is 0. A process without an identity has none.
func (s *Source) Measure(meter metric.Meter) error {
	if s == nil {
		return nil
	}
	return measure(meter, func() *x509.Certificate { return s.current().leaf() },
		attribute.String("of", "mesh"), attribute.Stringer("id", s.id))
}

// look implements Watched.
func (s *Source) look() {
	if s != nil {
		s.current()
	}
}

// same is a way to read keys that takes none of another process than that of id.
func same(id ID, read func(last *keys) (*keys, error)) func(last *keys) (*keys, error) {
	return func(last *keys) (*keys, error) {
		next, err := read(last)
		if err == nil && next.id != id {
			return nil, fmt.Errorf("--tls-cert: the certificate is now that of %s; this process is %s", next.id, id)
		}
		return next, err
	}
}

// files are where keys lie. Whoever replaces them may do so one by one: what does not fit
// together meanwhile is not used.
type files struct{ cert, key, ca string }

func (f files) read(last *keys) (*keys, error) {
	from, err := read("--tls", f.cert, f.key, f.ca)
	if err != nil {
		return nil, err
	}
	if last != nil && from == last.from {
		return last, nil
	}
	k := &keys{from: from}
	if k.pair, err = tls.X509KeyPair([]byte(from.cert), []byte(from.key)); err != nil {
		return nil, fmt.Errorf("--tls-cert: %s and the key in %s are no pair in PEM: %w", f.cert, f.key, err)
	}
	id, err := x509svid.IDFromCert(k.leaf())
	if err != nil {
		return nil, fmt.Errorf("--tls-cert: %s is not a certificate of a process of the mesh: %w; "+
			"give it exactly one URI, such as spiffe://example.org/memory", f.cert, err)
	}
	if k.id, err = parsed(id); err != nil {
		return nil, fmt.Errorf("--tls-cert: %s: %w", f.cert, err)
	}
	if k.cas, err = x509bundle.Parse(id.TrustDomain(), []byte(from.ca)); err != nil || k.cas.Empty() {
		return nil, fmt.Errorf("--tls-ca: %s holds no certificates in PEM: %w", f.ca, errOr(err, "it is empty"))
	}
	if _, err := k.verify(k.pair.Certificate); err != nil {
		return nil, fmt.Errorf("--tls-cert: with --tls-ca %s nobody would trust %s: %w", f.ca, f.cert, err)
	}
	return k, nil
}

// texts are what files of keys hold.
type texts struct{ cert, key, ca string }

// read reads files of keys, and names the flag of one that it cannot. One without a name is empty.
func read(flag, cert, key, ca string) (t texts, err error) {
	for _, file := range []struct {
		kind, name string
		text       *string
	}{{"cert", cert, &t.cert}, {"key", key, &t.key}, {"ca", ca, &t.ca}} {
		if file.name == "" {
			continue
		}
		text, err := os.ReadFile(file.name)
		if err != nil {
			return texts{}, fmt.Errorf("%s-%s: %w", flag, file.kind, err)
		}
		*file.text = string(text)
	}
	return t, nil
}

func errOr(err error, text string) error {
	if err == nil {
		err = errors.New(text)
	}
	return err
}

// verify returns whose certificate it is. It must be valid now, come from one of the CAs, and
// name exactly one process of the same trust domain (S1).
func (k *keys) verify(chain [][]byte) (ID, error) {
	id, _, err := x509svid.ParseAndVerify(chain, k.cas)
	switch {
	case err != nil && !id.IsZero() && id.TrustDomain() != k.cas.TrustDomain():
		return ID{}, fmt.Errorf("%s is of another trust domain than %s", id, k.cas.TrustDomain().Name())
	case err != nil && !id.IsZero():
		return ID{}, fmt.Errorf("the certificate of %s is not valid: %w", id, err)
	case err != nil:
		return ID{}, fmt.Errorf("the certificate proves nobody: %w", err)
	}
	return parsed(id)
}

// renewing gives a process certificates of a CA for development, each in the second half of
// the life of the one before.
func (ca *CA) renewing(id ID) func(*keys) (*keys, error) {
	return func(last *keys) (*keys, error) {
		if last != nil && time.Until(last.leaf().NotAfter) > devLife/2 {
			return last, nil
		}
		if err := id.check(); err != nil {
			return nil, fmt.Errorf("--tls-dev-ca: %w", err)
		}
		pair, err := ca.issue(process(id, devLife))
		if err != nil {
			return nil, fmt.Errorf("--tls-dev-ca: %w", err)
		}
		domain, err := spiffeid.TrustDomainFromString(ca.domain)
		if err != nil {
			return nil, fmt.Errorf("--tls-dev-ca: %w", err)
		}
		return &keys{id: id, pair: pair, cas: x509bundle.FromX509Authorities(domain, []*x509.Certificate{ca.cert})}, nil
	}
}
