package turncred

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/zap"

	"github.com/troupe-dev/troupe/internal/identity"
	"github.com/troupe-dev/troupe/internal/turnctx"
	"github.com/troupe-dev/troupe/pkg/failure"
)

// Every process of the mesh verifies the credentials of an orchestrator, for each supported kind of key.
func TestAuthority_VerifiesWhatWasIssued(t *testing.T) {
	m := newMesh(t, "example.org")
	wide, err := ecdsa.GenerateKey(elliptic.P384(), rand.Reader)
	require.NoError(t, err)
	_, edwards, err := ed25519.GenerateKey(rand.Reader)
	require.NoError(t, err)
	old, err := rsa.GenerateKey(rand.Reader, 2048)
	require.NoError(t, err)
	memory := m.memory(t)
	for name, key := range map[string]crypto.Signer{"P-256": newECKey(t), "P-384": wide, "Ed25519": edwards, "RSA": old} {
		t.Run(name, func(t *testing.T) {
			credential, err := m.authority(t, identity.Orchestrator, "", key).Issue(testTurn(), time.Time{})
			require.NoError(t, err)
			for range 2 { // the second result is cached
				turn, err := memory.Verify(credential)
				require.NoError(t, err)
				require.Equal(t, testTurn(), turn)
			}
		})
	}
	again := testTurn()
	again.Epoch, again.Replay = 0, true
	credential, err := m.orchestrator(t).Issue(again, time.Time{})
	require.NoError(t, err)
	turn, err := memory.Verify(credential)
	require.NoError(t, err)
	require.Equal(t, again, turn)
}

func TestAuthority_IssuesNothingWithoutIdentity(t *testing.T) {
	none := New(nil)
	credential, err := none.Issue(testTurn(), time.Time{})
	require.NoError(t, err)
	require.Empty(t, credential)
	_, ok, err := none.TurnFromContext(t.Context())
	require.NoError(t, err)
	require.False(t, ok)
}

// A credential is valid until one minute after the deadline of its turn, but at most 15 minutes. It is then
// rejected even if it is cached.
func TestAuthority_CredentialsExpire(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		open := func(role identity.Role) *Authority {
			s, err := identity.Open(identity.Config{DevCA: dir}, role, "", zap.NewNop())
			require.NoError(t, err)
			return New(s)
		}
		orchestrator, memory := open(identity.Orchestrator), open(identity.Memory)
		for name, c := range map[string]struct{ deadline, life time.Duration }{
			"soon": {30 * time.Second, 90 * time.Second}, "far": {time.Hour, MaxLife}, "past": {-10 * time.Second, 50 * time.Second},
		} {
			credential, err := orchestrator.Issue(testTurn(), time.Now().Add(c.deadline))
			require.NoError(t, err)
			time.Sleep(c.life - time.Second)
			_, err = memory.Verify(credential)
			require.NoError(t, err, name)
			time.Sleep(time.Second)
			for _, asked := range []*Authority{memory, open(identity.Memory)} {
				_, err = asked.Verify(credential)
				require.True(t, failure.Is(err, failure.Fenced), "%s: %v", name, err)
			}
		}
	})
}

// A credential stays valid after its orchestrator's certificate was replaced and has expired.
func TestAuthority_CredentialsOutliveTheCertificate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, dir := newMesh(t, "example.org"), t.TempDir()
		s, err := identity.Open(m.writeFiles(t, dir, newECKey(t), "/orchestrator", time.Now().Add(-time.Hour), time.Hour+time.Minute),
			identity.Orchestrator, "", zap.NewNop())
		require.NoError(t, err)
		orchestrator, memory := New(s), m.memory(t)
		before, err := orchestrator.Issue(testTurn(), time.Time{})
		require.NoError(t, err)
		m.writeFiles(t, dir, newECKey(t), "/orchestrator", time.Now().Add(-time.Minute), time.Hour)
		after, err := orchestrator.Issue(testTurn(), time.Time{})
		require.NoError(t, err)
		require.NotEqual(t, readChain(t, before), readChain(t, after))
		time.Sleep(10 * time.Minute)
		for _, credential := range []string{before, after} {
			turn, err := memory.Verify(credential)
			require.NoError(t, err)
			require.Equal(t, testTurn(), turn)
		}
	})
}

func TestTurn_MayAccessItsSessionAndChildSessions(t *testing.T) {
	turn := testTurn()
	require.True(t, turn.MayAccess("s-1"))
	require.True(t, turn.MayAccess(turnctx.ChildSessionPrefix("s-1")+"0123"))
	require.False(t, turn.MayAccess("s-2"))
	require.False(t, turn.MayAccess(turnctx.ChildSessionPrefix("s-2")+"0123"))
	require.False(t, turn.MayAccess(""))
	require.Len(t, turnctx.ChildSessionPrefix("s-1"), 29, "35 of 64 bytes are left")
}

// The cache never exceeds its limit, even if it must evict valid credentials.
func TestVerifiedCache_IsBounded(t *testing.T) {
	v := verifiedCache{turns: map[[32]byte]cachedTurn{}}
	now := time.Now()
	for i := range maxVerifiedTurns + 100 {
		v.addTurn(fmt.Sprint(i), cachedTurn{expires: now.Add(time.Duration(i%2) * time.Hour)}, now)
		require.LessOrEqual(t, len(v.turns), maxVerifiedTurns)
	}
	_, ok := v.findTurn(fmt.Sprint(maxVerifiedTurns+99), now)
	require.True(t, ok)
	_, ok = v.findTurn(fmt.Sprint(maxVerifiedTurns+98), now)
	require.False(t, ok, "it has expired")
}

// A credential is far smaller than the size limit of headers.
func TestAuthority_CredentialsAreSmall(t *testing.T) {
	credential, err := newMesh(t, "example.org").orchestrator(t).Issue(testTurn(), time.Time{})
	require.NoError(t, err)
	require.Less(t, len(credential), 2<<10)
	require.NotContains(t, credential, "\n")
	require.Equal(t, 2, strings.Count(credential, "."))
	t.Logf("%d bytes", len(credential))
}

func BenchmarkAuthority(b *testing.B) {
	m := newMesh(b, "example.org")
	orchestrator, memory := m.orchestrator(b), m.memory(b)
	credential, err := orchestrator.Issue(testTurn(), time.Time{})
	require.NoError(b, err)
	b.Run("issue", func(b *testing.B) {
		for b.Loop() {
			_, _ = orchestrator.Issue(testTurn(), time.Time{})
		}
	})
	b.Run("verify=first", func(b *testing.B) {
		for b.Loop() {
			_, _ = memory.verifyCredential(credential, time.Now())
		}
	})
	b.Run("verify=again", func(b *testing.B) {
		for b.Loop() {
			_, _ = memory.Verify(credential)
		}
	})
}

func readChain(t *testing.T, credential string) [][]byte {
	t.Helper()
	chain, err := certificateChain(credential)
	require.NoError(t, err)
	return chain
}
