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

// Source is the identity of a process and the CAs that it trusts. It rereads its files at each handshake, so they
// can be replaced while the process runs. While new files are invalid, the last valid ones stay in use. It is safe
// for concurrent use. A nil Source stands for a process without an identity.
type Source struct {
	reloader[*keys]

	id     ID
	signer atomic.Pointer[verifiedSigner] // the last verified signer
}

// keys are the certificate of a process and the CAs that it trusts.
type keys struct {
	id       ID
	pair     tls.Certificate
	cas      *x509bundle.Bundle
	contents keyContents // contents of the files
}

func (k *keys) leaf() *x509.Certificate { return k.pair.Leaf }

// ValidityPeriod returns the total validity of the certificate, from NotBefore to NotAfter.
func (s *Source) ValidityPeriod() time.Duration {
	leaf := s.current().leaf()
	return leaf.NotAfter.Sub(leaf.NotBefore)
}

// RegisterMetrics registers the gauge of the certificate's remaining validity in seconds. It does nothing for a
// process without an identity.
func (s *Source) RegisterMetrics(meter metric.Meter) error {
	if s == nil {
		return nil
	}
	return registerValidityGauge(meter, func() *x509.Certificate { return s.current().leaf() },
		attribute.String("of", "mesh"), attribute.Stringer("id", s.id))
}

// refresh implements Refreshable.
func (s *Source) refresh() {
	if s != nil {
		s.current()
	}
}

// requireSameID wraps read so that it rejects keys of another id.
func requireSameID(id ID, read func(last *keys) (*keys, error)) func(last *keys) (*keys, error) {
	return func(last *keys) (*keys, error) {
		next, err := read(last)
		if err == nil && next.id != id {
			return nil, fmt.Errorf("--tls-cert: the new certificate belongs to %s; this process is %s", next.id, id)
		}
		return next, err
	}
}

// keyFiles are the paths of the key files. The files may be replaced one after another, so a set that does not
// match is not used.
type keyFiles struct{ cert, key, ca string }

func (f keyFiles) readKeys(last *keys) (*keys, error) {
	from, err := readKeyFiles("--tls", f.cert, f.key, f.ca)
	if err != nil {
		return nil, err
	}
	if last != nil && from == last.contents {
		return last, nil
	}
	k := &keys{contents: from}
	if k.pair, err = tls.X509KeyPair([]byte(from.cert), []byte(from.key)); err != nil {
		return nil, fmt.Errorf("--tls-cert: %s and the key in %s are not a PEM certificate and key pair: %w", f.cert, f.key, err)
	}
	id, err := x509svid.IDFromCert(k.leaf())
	if err != nil {
		return nil, fmt.Errorf("--tls-cert: %s is not a certificate of a process of the mesh: %w; "+
			"give it exactly one URI, such as spiffe://example.org/memory", f.cert, err)
	}
	if k.id, err = idFromSPIFFE(id); err != nil {
		return nil, fmt.Errorf("--tls-cert: %s: %w", f.cert, err)
	}
	if k.cas, err = x509bundle.Parse(id.TrustDomain(), []byte(from.ca)); err != nil || k.cas.Empty() {
		return nil, fmt.Errorf("--tls-ca: %s contains no PEM certificates: %w", f.ca, errorOr(err, "it is empty"))
	}
	if _, err := k.verify(k.pair.Certificate); err != nil {
		return nil, fmt.Errorf("--tls-cert: with --tls-ca %s peers would reject %s: %w", f.ca, f.cert, err)
	}
	return k, nil
}

// keyContents are the contents of the key files, which tell whether the files have changed.
type keyContents struct{ cert, key, ca string }

// readKeyFiles reads key files and skips those without a name. Its error names the flag of the unreadable file.
func readKeyFiles(flag, cert, key, ca string) (t keyContents, err error) {
	for _, file := range []struct {
		kind, name string
		text       *string
	}{{"cert", cert, &t.cert}, {"key", key, &t.key}, {"ca", ca, &t.ca}} {
		if file.name == "" {
			continue
		}
		text, err := os.ReadFile(file.name)
		if err != nil {
			return keyContents{}, fmt.Errorf("%s-%s: %w", flag, file.kind, err)
		}
		*file.text = string(text)
	}
	return t, nil
}

func errorOr(err error, text string) error {
	if err == nil {
		err = errors.New(text)
	}
	return err
}

// verify verifies a certificate chain and returns its id. The chain must be valid now, lead to one of the CAs, and
// name exactly one process of the same trust domain (guarantee S1).
func (k *keys) verify(chain [][]byte) (ID, error) {
	id, _, err := x509svid.ParseAndVerify(chain, k.cas)
	switch {
	case err != nil && !id.IsZero() && id.TrustDomain() != k.cas.TrustDomain():
		return ID{}, fmt.Errorf("%s belongs to another trust domain than %s", id, k.cas.TrustDomain().Name())
	case err != nil && !id.IsZero():
		return ID{}, fmt.Errorf("the certificate of %s is not valid: %w", id, err)
	case err != nil:
		return ID{}, fmt.Errorf("the certificate proves no identity: %w", err)
	}
	return idFromSPIFFE(id)
}

// certificateIssuer returns a function that issues certificates of a development CA. The function returns the
// previous certificate in the first half of its validity, and then a new one.
func (ca *CA) certificateIssuer(id ID) func(*keys) (*keys, error) {
	return func(last *keys) (*keys, error) {
		if last != nil && time.Until(last.leaf().NotAfter) > devLifetime/2 {
			return last, nil
		}
		if err := id.validate(); err != nil {
			return nil, fmt.Errorf("--tls-dev-ca: %w", err)
		}
		pair, err := ca.issue(processTemplate(id, devLifetime))
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
