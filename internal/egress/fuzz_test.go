package egress

import (
	"net/netip"
	"testing"

	"github.com/stretchr/testify/require"
)

// No spelling of an inner address is accepted as a public one.
func FuzzAddress(f *testing.F) {
	for _, text := range []string{
		"", "127.0.0.1", "::ffff:127.0.0.1", "::ffff:0:127.0.0.1", "64:ff9b::7f00:1", "2002:7f00:1::", "fe80::1%eth0", "0.0.0.0",
		"8.8.8.8", "2606:4700::1111", "2001:db8::5efe:7f00:1", "10.0.0.0/8", "1.1.1.1/33", "localhost", "a.example",
	} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		networks, err := ParseNetworks([]string{text})
		require.Equal(t, err == nil, len(networks) == 1)
		_ = hostProblem(text)
		_ = matchesAnyPattern([]string{text, "*." + text}, text)
		a, err := netip.ParseAddr(text)
		if err != nil || innerAddressKind(a) != "" {
			return
		}
		a = a.Unmap()
		require.True(t, a.IsGlobalUnicast() && !a.IsPrivate() && a.Zone() == "", "%s passes for a public address", text)
	})
}
