package identity

import (
	"crypto/ecdsa"
	"crypto/tls"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/zap"
)

// A signer that was verified before is asked again for what may have changed: when it signed, and
// which CAs are trusted now.
func TestSource_RemembersASignerAsLongAsItsProofHolds(t *testing.T) {
	ca, next := authority(t), authority(t)
	dir := t.TempDir()
	cfg := write(t, dir, ca, ca.certify(t, paper(t, memoryID)))
	s, err := Open(cfg, Memory, "", zap.NewNop())
	require.NoError(t, err)
	signer := ca.certify(t, paper(t, "spiffe://example.org/orchestrator"))
	other := ca.certify(t, paper(t, "spiffe://example.org/orchestrator"))
	for range 2 {
		for _, pair := range []tls.Certificate{signer, other} {
			id, key, err := s.Signer(pair.Certificate, time.Now())
			require.NoError(t, err)
			require.Equal(t, "spiffe://example.org/orchestrator", id.String())
			require.True(t, pair.Leaf.PublicKey.(*ecdsa.PublicKey).Equal(key))
		}
	}
	for _, at := range []time.Time{other.Leaf.NotAfter.Add(time.Second), other.Leaf.NotBefore.Add(-time.Second)} {
		_, _, err = s.Signer(other.Certificate, at)
		require.ErrorContains(t, err, "certificate of the signer")
	}
	_, _, err = s.Signer([][]byte{other.Certificate[0], signer.Certificate[0]}, time.Now())
	require.NoError(t, err, "it comes with one more that is of no use")
	write(t, dir, next, next.certify(t, paper(t, memoryID)))
	_, _, err = s.Signer(other.Certificate, time.Now())
	require.ErrorContains(t, err, "certificate of the signer", "its CA is gone")
}
