package rate

import (
	"net"
	"net/netip"
)

// address identifies a peer: its IPv4 address, or the /64 of its IPv6 address, because one machine usually owns a
// whole /64.
type address netip.Prefix

// CheckFailures returns an error if the address has failed to authenticate too often. It is called before the
// credentials of a call are checked. It counts nothing; CountFailure does. Modes: policy_rate_limit.
func (l *Limiter) CheckFailures(from net.Addr) error {
	limit, at, ok := l.limitFor(Failures, from)
	if !ok {
		return nil
	}
	bucket := l.failures.limiter(at, limit)
	if bucket.Tokens() >= 1 {
		return nil
	}
	token := bucket.Reserve()
	wait := token.Delay()
	token.Cancel()
	return limit.exceededError(Failures, netip.Prefix(at).String(), wait)
}

// CountFailure counts a failed authentication from the address.
func (l *Limiter) CountFailure(from net.Addr) {
	if limit, at, ok := l.limitFor(Failures, from); ok {
		l.failures.take(at, limit)
	}
}

// CountCall counts a call from the address, and returns an error if there were too many. It runs before any work
// is done for the call, so calls that are cancelled at once count too. Modes: policy_rate_limit.
func (l *Limiter) CountCall(from net.Addr) error {
	limit, at, ok := l.limitFor(Streams, from)
	if !ok {
		return nil
	}
	if wait := l.streams.take(at, limit); wait > 0 {
		return limit.exceededError(Streams, netip.Prefix(at).String(), wait)
	}
	return nil
}

// CountReset counts a stream that the address has reset, and reports whether the address is still within its
// limit.
func (l *Limiter) CountReset(from net.Addr) bool {
	limit, at, ok := l.limitFor(Resets, from)
	return !ok || l.resets.take(at, limit) == 0
}

// limitFor returns the limit of a class and the key of an address. ok is false if the class has no limit or the
// peer has no IP address.
func (l *Limiter) limitFor(class Class, from net.Addr) (Limit, address, bool) {
	limit, ok := l.table[class]
	if !ok || limit.Rate == 0 {
		return Limit{}, address{}, false
	}
	at, ok := PeerPrefix(from)
	return limit, address(at), ok
}

// PeerPrefix returns the prefix that identifies a peer: its IPv4 address as a /32, or the /64 of its IPv6 address.
// ok is false for other kinds of addresses.
func PeerPrefix(at net.Addr) (netip.Prefix, bool) {
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
