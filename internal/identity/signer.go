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

// ID returns the id of the process.
func (s *Source) ID() ID { return s.id }

// Pair returns the current certificate chain of the process and its key, for signing. Peers verify the
// signature with Signer.
func (s *Source) Pair() tls.Certificate { return s.current().pair }

// Signer returns the id and public key of the certificate chain that signed something at a time. The chain must
// have been valid then, rather than now: signatures outlive the certificate of the signer, which is replaced
// often. The last signer is cached, because few processes sign.
func (s *Source) Signer(chain [][]byte, at time.Time) (ID, crypto.PublicKey, error) {
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

// verifiedSigner is a signer with the proof of its identity.
type verifiedSigner struct {
	keys  *keys // hold the CAs that verified it
	chain [][]byte
	path  []*x509.Certificate // to one of the CAs
	id    ID
}

// isValidAt reports whether the proof also holds at another time.
func (v *verifiedSigner) isValidAt(at time.Time) bool {
	return !slices.ContainsFunc(v.path, func(c *x509.Certificate) bool { return at.Before(c.NotBefore) || at.After(c.NotAfter) })
}
