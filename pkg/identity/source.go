package identity

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/spiffe/go-spiffe/v2/bundle/x509bundle"
	"github.com/spiffe/go-spiffe/v2/spiffeid"
	"github.com/spiffe/go-spiffe/v2/svid/x509svid"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"
	"go.uber.org/zap"
)

// Source is the identity of a process, and whom it trusts. It looks for new keys at each
// handshake, so that all can be replaced while it runs; while those that lie there cannot be
// used, it goes on with the last that could. Safe for concurrent use. Nil is a process without
// an identity.
type Source struct {
	id   ID
	log  *zap.Logger
	read func(last *keys) (*keys, error) // returns last when nothing is new

	mu     sync.Mutex
	last   *keys
	lament string // what was last said to be wrong with the files

	signer atomic.Pointer[verified] // the last one
}

// keys are what a process proves itself with, and what it asks of others.
type keys struct {
	id   ID
	pair tls.Certificate
	cas  *x509bundle.Bundle
	from [3][]byte // the files that they were read from
}

func (k *keys) leaf() *x509.Certificate { return k.pair.Leaf }

// until tells a log when the keys end. It is a text, because a log on a console shows no date of a time.
func (k *keys) until() zap.Field {
	return zap.String("until", k.leaf().NotAfter.Format(time.RFC3339))
}

// Life is for how long the certificate is valid in all, from its beginning to its end.
func (s *Source) Life() time.Duration {
	leaf := s.current().leaf()
	return leaf.NotAfter.Sub(leaf.NotBefore)
}

// Measure tells a meter for how long the certificate is still valid, in seconds: somebody must
// renew it before that is 0.
func (s *Source) Measure(meter metric.Meter) error {
	of := metric.WithAttributes(attribute.Stringer("id", s.id))
	_, err := meter.Float64ObservableGauge("troupe.certificate.remaining",
		metric.WithUnit("s"), metric.WithDescription("For how long the certificate of this process is still valid."),
		metric.WithFloat64Callback(func(_ context.Context, o metric.Float64Observer) error {
			o.Observe(time.Until(s.current().leaf().NotAfter).Seconds(), of)
			return nil
		}))
	return err
}

// current are the keys to use now.
func (s *Source) current() *keys {
	s.mu.Lock()
	defer s.mu.Unlock()
	next, err := s.read(s.last)
	if err == nil && next.id != s.id {
		err = fmt.Errorf("--tls-cert: the certificate is now that of %s; this process is %s", next.id, s.id)
	}
	switch {
	case err != nil && err.Error() != s.lament:
		s.lament = err.Error()
		s.log.Warn("the new keys cannot be used; going on with the last ones", zap.Error(err), s.last.until())
	case err == nil && next != s.last:
		s.last, s.lament = next, ""
		s.log.Info("new keys", next.until())
	}
	return s.last
}

// files are where keys lie. Whoever replaces them may do so one by one: what does not fit
// together meanwhile is not used.
type files struct{ cert, key, ca string }

func (f files) read(last *keys) (*keys, error) {
	var from [3][]byte
	for i, file := range []struct{ flag, name string }{{"--tls-cert", f.cert}, {"--tls-key", f.key}, {"--tls-ca", f.ca}} {
		text, err := os.ReadFile(file.name)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", file.flag, err)
		}
		from[i] = text
	}
	if last != nil && bytes.Equal(from[0], last.from[0]) && bytes.Equal(from[1], last.from[1]) && bytes.Equal(from[2], last.from[2]) {
		return last, nil
	}
	k := &keys{from: from}
	var err error
	if k.pair, err = tls.X509KeyPair(from[0], from[1]); err != nil {
		return nil, fmt.Errorf("--tls-cert: %s and the key in %s are no pair in PEM: %w", f.cert, f.key, err)
	}
	id, err := x509svid.IDFromCert(k.leaf())
	if err != nil {
		return nil, fmt.Errorf("--tls-cert: %s is no certificate of a process of the mesh: %w; give it exactly one URI, such as spiffe://example.org/memory", f.cert, err)
	}
	if k.id, err = parsed(id); err != nil {
		return nil, fmt.Errorf("--tls-cert: %s: %w", f.cert, err)
	}
	if k.cas, err = x509bundle.Parse(id.TrustDomain(), from[2]); err != nil || k.cas.Empty() {
		return nil, fmt.Errorf("--tls-ca: %s holds no certificates in PEM: %w", f.ca, errOr(err, "it is empty"))
	}
	if _, err := k.verify(k.pair.Certificate); err != nil {
		return nil, fmt.Errorf("--tls-cert: with --tls-ca %s nobody would trust %s: %w", f.ca, f.cert, err)
	}
	return k, nil
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
