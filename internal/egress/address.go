package egress

import (
	"net/netip"
)

// globalUnicast is the publicly routed part of IPv6. All other IPv6 addresses are rejected, such as
// IPv4-compatible, NAT64, unique local, link-local and multicast addresses.
var globalUnicast = netip.MustParsePrefix("2000::/3")

// specialNetworks are the special-purpose networks of the IANA registries, ordered by how often they occur, and the
// metadata addresses of clouds outside those networks.
var specialNetworks = []struct {
	network netip.Prefix
	name    string
}{
	{netip.MustParsePrefix("127.0.0.0/8"), "loopback"},
	{netip.MustParsePrefix("10.0.0.0/8"), "private"},
	{netip.MustParsePrefix("172.16.0.0/12"), "private"},
	{netip.MustParsePrefix("192.168.0.0/16"), "private"},
	{netip.MustParsePrefix("169.254.0.0/16"), "link-local, where clouds keep their metadata"},
	{netip.MustParsePrefix("100.64.0.0/10"), "shared by carriers (CGNAT)"},
	{netip.MustParsePrefix("0.0.0.0/8"), "this host"},
	{netip.MustParsePrefix("168.63.129.16/32"), "the metadata of a cloud"},
	{netip.MustParsePrefix("192.0.0.0/24"), "reserved"},
	{netip.MustParsePrefix("192.0.2.0/24"), "for documentation"},
	{netip.MustParsePrefix("192.88.99.0/24"), "6to4"},
	{netip.MustParsePrefix("198.18.0.0/15"), "for benchmarks"},
	{netip.MustParsePrefix("198.51.100.0/24"), "for documentation"},
	{netip.MustParsePrefix("203.0.113.0/24"), "for documentation"},
	{netip.MustParsePrefix("224.0.0.0/4"), "multicast"},
	{netip.MustParsePrefix("240.0.0.0/4"), "reserved"},
	{netip.MustParsePrefix("::1/128"), "loopback"},
	{netip.MustParsePrefix("::/128"), "this host"},
	{netip.MustParsePrefix("::/96"), "an IPv4 address in another form"},
	{netip.MustParsePrefix("64:ff9b::/96"), "NAT64"},
	{netip.MustParsePrefix("64:ff9b:1::/48"), "NAT64"},
	{netip.MustParsePrefix("fc00::/7"), "private"},
	{netip.MustParsePrefix("fe80::/10"), "link-local"},
	{netip.MustParsePrefix("fec0::/10"), "private"},
	{netip.MustParsePrefix("ff00::/8"), "multicast"},
	{netip.MustParsePrefix("2001::/23"), "reserved, Teredo among others"},
	{netip.MustParsePrefix("2001:db8::/32"), "for documentation"},
	{netip.MustParsePrefix("2002::/16"), "6to4"},
	{netip.MustParsePrefix("3fff::/20"), "for documentation"},
}

// innerAddressKind returns the kind of an inner address ("" for a public one). An IPv4-mapped IPv6 address is
// treated as IPv4. Addresses that embed an IPv4 address in another way count as inner.
func innerAddressKind(a netip.Addr) string {
	a = a.Unmap()
	for _, b := range specialNetworks {
		if b.network.Contains(a) {
			return b.name
		}
	}
	switch {
	case !a.IsValid():
		return "no address"
	case a.Zone() != "":
		return "bound to an interface"
	case a.Is6() && !globalUnicast.Contains(a):
		return "reserved"
	case a.Is6() && embedsIPv4(a):
		return "an IPv4 address in another form (ISATAP)"
	}
	return ""
}

// embedsIPv4 reports whether the lower half of an IPv6 address contains an IPv4 address (RFC 5214).
func embedsIPv4(a netip.Addr) bool {
	b := a.As16()
	return b[8]&^2 == 0 && b[9] == 0 && b[10] == 0x5e && b[11] == 0xfe
}
