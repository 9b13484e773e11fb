package rate

import (
	"net"
	"net/netip"
)

// address is a peer; of IPv6 its /64, since one machine has all of that.
type address netip.Prefix

// Tried reports whether somebody at the address may try to prove who it is. It counts nothing:
// Failed does. Who has failed too often is refused before anybody looks at what it shows, with
// the mode policy_rate_limit.
func (l *Limiter) Tried(from net.Addr) error {
	limit, at, ok := l.at(Failures, from)
	if !ok {
		return nil
	}
	bucket := l.failed.at(at, limit)
	if bucket.Tokens() >= 1 {
		return nil
	}
	token := bucket.Reserve()
	wait := token.Delay()
	token.Cancel()
	return limit.refusal(Failures, netip.Prefix(at).String(), wait)
}

// Failed counts that somebody at the address did not prove who it is.
func (l *Limiter) Failed(from net.Addr) {
	if limit, at, ok := l.at(Failures, from); ok {
		l.failed.take(at, limit)
	}
}

// Opened counts that somebody at the address began a call, also one that he takes back at once.
// It is asked before anything is done for the call. Modes: policy_rate_limit.
func (l *Limiter) Opened(from net.Addr) error {
	limit, at, ok := l.at(Streams, from)
	if !ok {
		return nil
	}
	if wait := l.opened.take(at, limit); wait > 0 {
		return limit.refusal(Streams, netip.Prefix(at).String(), wait)
	}
	return nil
}

// Reset counts that somebody at the address took back a stream, and reports whether it may.
func (l *Limiter) Reset(from net.Addr) bool {
	limit, at, ok := l.at(Resets, from)
	return !ok || l.reset.take(at, limit) == 0
}

// at is the limit of an address. Peers that have no IP have none.
func (l *Limiter) at(class Class, from net.Addr) (Limit, address, bool) {
	limit, ok := l.table[class]
	if !ok || limit.Rate == 0 {
		return Limit{}, address{}, false
	}
	at, ok := Peer(from)
	return limit, address(at), ok
}

// Peer is the address as one peer: an IPv4 address, or the /64 of an IPv6 one. It is false for
// what is no address of TCP.
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
