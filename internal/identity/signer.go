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

// ID returns the identity of the process.
func (s *Source) ID() ID { return s.id }

// KeyPair returns the current certificate chain of the process with its key, for signing. Peers verify the chain
// with VerifySigner.
func (s *Source) KeyPair() tls.Certificate { return s.current().pair }

// VerifySigner verifies the certificate chain of a signature and returns the signer's id and public key. The chain
// must have been valid at the time of signing rather than now, because certificates are replaced often and
// signatures outlive them. The last signer is cached, because few processes sign.
func (s *Source) VerifySigner(chain [][]byte, at time.Time) (ID, crypto.PublicKey, error) {
	k := s.current()
	if last := s.signer.Load(); last != nil && last.keys == k && slices.EqualFunc(last.chain, chain, bytes.Equal) && last.isValidAt(at) {
		return last.id, last.path[0].PublicKey, nil
	}
	id, paths, err := x509svid.ParseAndVerify(chain, k.cas, x509svid.WithTime(at))
	if err != nil {
		return ID{}, nil, fmt.Errorf("the certificate of the signer: %w", err)
	}
	signer, err := idFromSPIFFE(id)
	if err != nil {
		return ID{}, nil, err
	}
	s.signer.Store(&verifiedSigner{k, chain, paths[0], signer})
	return signer, paths[0][0].PublicKey, nil
}

// verifiedSigner is a signer whose certificate chain was verified.
type verifiedSigner struct {
	keys  *keys // keys with the CAs that verified the chain
	chain [][]byte
	path  []*x509.Certificate // path from the signer to one of the CAs
	id    ID
}

// isValidAt reports whether the verified chain was also valid at time t.
func (v *verifiedSigner) isValidAt(at time.Time) bool {
	return !slices.ContainsFunc(v.path, func(c *x509.Certificate) bool { return at.Before(c.NotBefore) || at.After(c.NotAfter) })
}
