package identity

import (
	"net"
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestParse_GivesBackWhatStringSays(t *testing.T) {
	for text, want := range map[string]ID{
		"spiffe://example.org/orchestrator":          {"example.org", Orchestrator, ""},
		"spiffe://example.org/memory":                {"example.org", Memory, ""},
		"spiffe://mesh-1.example.org/worker/a":       {"mesh-1.example.org", Worker, "a"},
		"spiffe://example.org/worker/research-agent": {"example.org", Worker, "research-agent"},
	} {
		id, err := Parse(text)
		require.NoError(t, err)
		require.Equal(t, want, id)
		require.Equal(t, text, id.String())
	}
}

// A path counts as a whole: nobody comes in by one that begins like another's.
func TestParse_RefusesWhatIsNobody(t *testing.T) {
	for _, text := range []string{
		"", "spiffe://", "spiffe://example.org", "spiffe://example.org/", "https://example.org/memory", "example.org/memory",
		"spiffe://example.org/memory/", "spiffe://example.org/memory/x", "spiffe://example.org/memory-admin", "spiffe://example.org/Memory",
		"spiffe://example.org/worker", "spiffe://example.org/worker/", "spiffe://example.org/worker/a/b", "spiffe://example.org/worker/..",
		"spiffe://example.org/x/orchestrator", "spiffe://example.org:443/memory", "spiffe://user@example.org/memory", "spiffe://EXAMPLE.org/memory",
		"spiffe://example.org/worker/a?b=c", "spiffe://example.org/worker/a#b", "spiffe://example.org/worker/a%2fb", "spiffe://example.org//memory",
	} {
		_, err := Parse(text)
		require.Error(t, err, "%q", text)
	}
}

func TestConfig_PlainTextStaysOnLoopback(t *testing.T) {
	everywhere, here := &net.TCPAddr{IP: net.IPv6unspecified, Port: 1}, &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 1}
	other := &net.TCPAddr{IP: net.IPv4(10, 0, 0, 7), Port: 1}
	for _, c := range []struct {
		cfg  Config
		at   net.Addr
		says string // empty: it may be served
	}{
		{Config{}, here, ""},
		{Config{}, &net.TCPAddr{IP: net.IPv6loopback}, ""},
		{Config{}, everywhere, "--insecure-plaintext-beyond-loopback"},
		{Config{}, other, "--grpc-addr: other machines reach 10.0.0.7:1, and plain text proves nobody; give --tls-cert"},
		{Config{InsecurePlaintext: true}, other, ""},
		{Config{Cert: "f"}, other, ""},
		{Config{DevCA: "d"}, here, ""},
		{Config{DevCA: "d"}, other, "a CA for development is for one machine"},
		{Config{DevCA: "d", InsecurePlaintext: true}, other, "a CA for development is for one machine"},
	} {
		err := c.cfg.Permit("--grpc-addr", c.at)
		if c.says == "" {
			require.NoError(t, err)
			continue
		}
		require.ErrorContains(t, err, c.says)
	}
	require.NoError(t, Edge{}.Permit(false)("--grpc-addr", here))
	require.ErrorContains(t, Edge{}.Permit(false)("--grpc-addr", everywhere), "give --client-tls-cert and --client-tls-key")
	require.NoError(t, Edge{Cert: "f"}.Permit(false)("--grpc-addr", everywhere))
	require.NoError(t, Edge{}.Permit(true)("--grpc-addr", everywhere))
}
