// Package egress provides an HTTP client for requests whose target is influenced by a model, or by a server that a
// model contacted. The client reaches only its configured hosts, and nothing inside its own network (guarantee
// S13).
//
// It checks the URL of each request, including redirects. It checks the address of the host when the connection is
// made. A name therefore cannot resolve to one address for the check and to another for the connection.
package egress

import (
	"crypto/tls"
	"crypto/x509"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"time"

	"github.com/troupe-dev/troupe/pkg/failure"
)

// Limits of a client.
const (
	MaxRedirects        = 3
	DefaultMaxBodyBytes = 5 << 20 // bytes, after decompression
	DefaultTimeout      = 30 * time.Second

	dialTimeout    = 10 * time.Second
	idleTimeout    = 30 * time.Second
	maxHeaderBytes = 256 << 10 // size limit of the response headers in bytes
)

// Config configures which hosts a client may reach. Hosts is required.
type Config struct {
	// Hosts are the allowed hosts. Each is a name or an address, *.example.com for all names below example.com, or
	// * for every host. Inner addresses stay unreachable even if they are listed.
	Hosts []string
	// PlainHTTP lists the hosts that may be reached without TLS, in the same forms as Hosts.
	PlainHTTP []string
	// Ports are the allowed ports besides 443, and besides 80 for PlainHTTP.
	Ports []int
	// AllowInnerAddresses lists networks that are reachable although they are not public, such as loopback,
	// private or link-local networks. List as little as possible, such as 127.0.0.1/32. Networks that are nearly a
	// whole address space are rejected.
	AllowInnerAddresses []netip.Prefix

	MaxBodyBytes int64         // bytes of a response (0 means DefaultMaxBodyBytes, negative no limit)
	Timeout      time.Duration // limit of a request including redirects and body (0 means DefaultTimeout, negative none)

	RootCAs  *x509.CertPool // nil means the default of the system
	Resolver *net.Resolver  // nil means the default of the system
}

// New returns a client that enforces the rules of c. It uses no proxy, keeps no cookies and follows at most
// MaxRedirects redirects. To another host it sends only keptHeaders. Invalid settings are an error of mode
// user_invalid_input.
//
// A request that breaks a rule fails with policy_allowlist (host, scheme and port) or policy_security (all other
// rules). A response that is too long fails with resource_quota, from Do or while its body is read. The message
// says which rule was broken and how to allow the request.
func New(c Config) (*http.Client, error) {
	g, err := newGuard(c)
	if err != nil {
		return nil, err
	}
	dialer := &net.Dialer{Timeout: dialTimeout, Resolver: c.Resolver, ControlContext: g.checkConnection}
	g.transport = &http.Transport{
		Proxy:                  nil, // a proxy from the environment would make unchecked connections
		DialContext:            dialer.DialContext,
		TLSClientConfig:        &tls.Config{RootCAs: c.RootCAs, MinVersion: tls.VersionTLS12},
		TLSHandshakeTimeout:    dialTimeout,
		ForceAttemptHTTP2:      true,
		MaxIdleConnsPerHost:    2,
		IdleConnTimeout:        idleTimeout,
		MaxResponseHeaderBytes: maxHeaderBytes,
	}
	client := &http.Client{Transport: g, CheckRedirect: checkRedirect, Timeout: DefaultTimeout}
	if c.Timeout != 0 {
		client.Timeout = max(c.Timeout, 0)
	}
	return client, nil
}

// keptHeaders are the only headers that are sent to another host after a redirect. It is an allowlist, because a
// credential may be in a header with any name.
var keptHeaders = []string{"Accept", "Accept-Language", "User-Agent"}

// checkRedirect limits the number of redirects and removes headers that another host must not see. The guard
// checks the target of each redirect.
func checkRedirect(req *http.Request, via []*http.Request) error {
	if len(via) > MaxRedirects {
		return failure.Newf(failure.PolicySecurity, "egress.Redirect",
			"the server redirects more than %d times; ask for the last address itself", MaxRedirects)
	}
	req.Header.Del("Referer") // the URL of the previous request may contain a secret
	first := via[0].URL       // each redirect starts with the headers of the first request
	if req.URL.Scheme == first.Scheme && req.URL.Host == first.Host {
		return nil
	}
	if req.Body != nil && req.Body != http.NoBody {
		return failure.Newf(failure.PolicySecurity, "egress.Redirect",
			"%s redirects a request with a body to another host; ask %s itself if that is meant", first.Host, req.URL.Host)
	}
	for name := range req.Header {
		if !slices.Contains(keptHeaders, name) {
			req.Header.Del(name)
		}
	}
	return nil
}

// ParseNetworks parses networks such as 10.0.0.0/8 from a configuration. A single address becomes a network that
// contains only that address. The error has the mode user_invalid_input and quotes the invalid text.
func ParseNetworks(texts []string) ([]netip.Prefix, error) {
	var all []netip.Prefix
	for i, text := range texts {
		p, err := netip.ParsePrefix(text)
		if a, alone := netip.ParseAddr(text); alone == nil && a.Zone() == "" {
			p, err = netip.PrefixFrom(a, a.BitLen()), nil
		}
		if err != nil {
			return nil, failure.Newf(failure.UserInvalidInput, "egress.Networks",
				"allowInnerAddresses[%d] is %q; use a network such as 10.0.0.0/8, or an address", i, text)
		}
		all = append(all, p)
	}
	return all, nil
}
