package identity

import (
	"bytes"
	"crypto"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"slices"
	"time"

	"github.com/spiffe/go-spiffe/v2/svid/x509svid"
)

// ID is who the process is.
func (s *Source) ID() ID { return s.id }

// Pair is the certificate that the process proves itself with now, with those between it and the
// CA, and its key. It is for signing; others verify it by Signer.
func (s *Source) Pair() tls.Certificate { return s.current().pair }

// Signer returns whose certificate it is that signed something at a time, and its public key. It
// is asked what a certificate of a handshake is, but that it must have been valid then: what was
// signed does not end with the certificate of the signer, which is replaced all the time. The last
// signer is remembered, for few sign all that there is.
func (s *Source) Signer(chain [][]byte, at time.Time) (ID, crypto.PublicKey, error) {
	k := s.current()
	if last := s.signer.Load(); last != nil && last.by == k && slices.EqualFunc(last.chain, chain, bytes.Equal) && last.valid(at) {
		return last.id, last.path[0].PublicKey, nil
	}
	id, paths, err := x509svid.ParseAndVerify(chain, k.cas, x509svid.WithTime(at))
	if err != nil {
		return ID{}, nil, fmt.Errorf("the certificate of the signer: %w", err)
	}
	signer, err := parsed(id)
	if err != nil {
		return ID{}, nil, err
	}
	s.signer.Store(&verified{k, chain, paths[0], signer})
	return signer, paths[0][0].PublicKey, nil
}

// verified is a signer, and how that was proven.
type verified struct {
	by    *keys // whose CAs were asked
	chain [][]byte
	path  []*x509.Certificate // to one of the CAs
	id    ID
}

// valid reports whether the same proof holds for another time.
func (v *verified) valid(at time.Time) bool {
	return !slices.ContainsFunc(v.path, func(c *x509.Certificate) bool { return at.Before(c.NotBefore) || at.After(c.NotAfter) })
}
