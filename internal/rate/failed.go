package rate

import (
	"net"
	"net/netip"
)

// address is the address of a peer. For IPv6 it is the /64, because one machine usually owns all of it.
type address netip.Prefix

// CheckFailures returns an error if the address has failed to authenticate too often, before its credentials are
// checked. It counts nothing; Failed does. Modes: policy_rate_limit.
func (l *Limiter) CheckFailures(from net.Addr) error {
	limit, at, ok := l.limitFor(Failures, from)
	if !ok {
		return nil
	}
	bucket := l.failed.limiter(at, limit)
	if bucket.Tokens() >= 1 {
		return nil
	}
	token := bucket.Reserve()
	wait := token.Delay()
	token.Cancel()
	return limit.refusal(Failures, netip.Prefix(at).String(), wait)
}

// CountFailure counts a failed authentication of the address.
func (l *Limiter) CountFailure(from net.Addr) {
	if limit, at, ok := l.limitFor(Failures, from); ok {
		l.failed.take(at, limit)
	}
}

// CountCall counts a call of the address, even if it is cancelled at once. It runs before any work for the call.
// Modes: policy_rate_limit.
func (l *Limiter) CountCall(from net.Addr) error {
	limit, at, ok := l.limitFor(Streams, from)
	if !ok {
		return nil
	}
	if wait := l.opened.take(at, limit); wait > 0 {
		return limit.refusal(Streams, netip.Prefix(at).String(), wait)
	}
	return nil
}

// CountReset counts a stream that the address has reset, and reports whether that is within the limit.
func (l *Limiter) CountReset(from net.Addr) bool {
	limit, at, ok := l.limitFor(Resets, from)
	return !ok || l.reset.take(at, limit) == 0
}

// limitFor returns the limit of an address. Peers without an IP address have none.
func (l *Limiter) limitFor(class Class, from net.Addr) (Limit, address, bool) {
	limit, ok := l.table[class]
	if !ok || limit.Rate == 0 {
		return Limit{}, address{}, false
	}
	at, ok := Peer(from)
	return limit, address(at), ok
}

// Peer returns the address as one peer: an IPv4 address, or the /64 of an IPv6 address. It returns false for
// other kinds of address.
func Peer(at net.Addr) (netip.Prefix, bool) {
	tcp, ok := at.(*net.TCPAddr)
	if !ok {
		return netip.Prefix{}, false
	}
	ip, ok := netip.AddrFromSlice(tcp.IP)
	if !ok {
		return netip.Prefix{}, false
	}
	ip = ip.Unmap().WithZone("")
	bits := 32
	if ip.Is6() {
		bits = 64
	}
	prefix, err := ip.Prefix(bits)
	return prefix, err == nil
}
