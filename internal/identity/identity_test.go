package identity

import (
	"net"
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestParse_InvertsString(t *testing.T) {
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

// Parse compares the whole path, so a valid path with a suffix is rejected.
func TestParse_RejectsOtherPaths(t *testing.T) {
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
		says string // (empty if it may be served)
	}{
		{Config{}, here, ""},
		{Config{}, &net.TCPAddr{IP: net.IPv6loopback}, ""},
		{Config{}, everywhere, "--insecure-plaintext-beyond-loopback"},
		{Config{}, other, "--grpc-addr: other machines reach 10.0.0.7:1, and plain text authenticates no caller; give --tls-cert"},
		{Config{InsecurePlaintext: true}, other, ""},
		{Config{Cert: "f"}, other, ""},
		{Config{DevCA: "d"}, here, ""},
		{Config{DevCA: "d"}, other, "a development CA is for one machine only"},
		{Config{DevCA: "d", InsecurePlaintext: true}, other, "a development CA is for one machine only"},
	} {
		err := c.cfg.CheckAddress("--grpc-addr", c.at)
		if c.says == "" {
			require.NoError(t, err)
			continue
		}
		require.ErrorContains(t, err, c.says)
	}
	require.NoError(t, EdgeConfig{}.CheckAddress(false)("--grpc-addr", here))
	require.ErrorContains(t, EdgeConfig{}.CheckAddress(false)("--grpc-addr", everywhere), "give --client-tls-cert and --client-tls-key")
	require.NoError(t, EdgeConfig{Cert: "f"}.CheckAddress(false)("--grpc-addr", everywhere))
	require.NoError(t, EdgeConfig{}.CheckAddress(true)("--grpc-addr", everywhere))
}
