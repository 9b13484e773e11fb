package identity

import (
	"crypto/ecdsa"
	"crypto/tls"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/zap"
)

// A cached signer is verified again if the time of signing or the trusted CAs have changed.
func TestSource_CachesSignersWhileTheyAreValid(t *testing.T) {
	ca, next := newCA(t), newCA(t)
	dir := t.TempDir()
	cfg := writeFiles(t, dir, ca, ca.certify(t, certTemplate(t, memoryID)))
	s, err := Open(cfg, Memory, "", zap.NewNop())
	require.NoError(t, err)
	signer := ca.certify(t, certTemplate(t, "spiffe://example.org/orchestrator"))
	other := ca.certify(t, certTemplate(t, "spiffe://example.org/orchestrator"))
	for range 2 {
		for _, pair := range []tls.Certificate{signer, other} {
			id, key, err := s.VerifySigner(pair.Certificate, time.Now())
			require.NoError(t, err)
			require.Equal(t, "spiffe://example.org/orchestrator", id.String())
			require.True(t, pair.Leaf.PublicKey.(*ecdsa.PublicKey).Equal(key))
		}
	}
	for _, at := range []time.Time{other.Leaf.NotAfter.Add(time.Second), other.Leaf.NotBefore.Add(-time.Second)} {
		_, _, err = s.VerifySigner(other.Certificate, at)
		require.ErrorContains(t, err, "certificate of the signer")
	}
	_, _, err = s.VerifySigner([][]byte{other.Certificate[0], signer.Certificate[0]}, time.Now())
	require.NoError(t, err, "an unneeded certificate in the chain is ignored")
	writeFiles(t, dir, next, next.certify(t, certTemplate(t, memoryID)))
	_, _, err = s.VerifySigner(other.Certificate, time.Now())
	require.ErrorContains(t, err, "certificate of the signer", "its CA is no longer trusted")
}
