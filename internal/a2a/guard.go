package a2a

import (
	"net"
	"net/http"
	"net/netip"
	"net/url"
)

// rejectCrossSite returns a handler that rejects requests from web pages in a browser on this machine. It rejects
// requests from another origin. If the bridge listens on loopback, it also rejects any Host other than loopback
// and the host of the bridge's URL, which protects against DNS rebinding.
func rejectCrossSite(next http.Handler, at string) http.Handler {
	known, _ := url.Parse(at)
	return http.NewCrossOriginProtection().Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		local, ok := r.Context().Value(http.LocalAddrContextKey).(net.Addr)
		if ok && isLoopback(local.String()) && !isLoopback(r.Host) && (known == nil || r.Host != known.Host) {
			http.Error(w, "this address is for programs on the same machine; name it as 127.0.0.1 or localhost", http.StatusForbidden)
			return
		}
		next.ServeHTTP(w, r)
	}))
}

// isLoopback reports whether the address, with or without a port, is a loopback address.
func isLoopback(address string) bool {
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		host = address
	}
	if host == "localhost" {
		return true
	}
	ip, err := netip.ParseAddr(host)
	return err == nil && ip.Unmap().IsLoopback()
}
