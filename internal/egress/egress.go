// Package egress is the HTTP client for requests whose target is influenced by a model, or by a server that a
// model contacted. It reaches only the hosts that it was made for, and nothing inside the network that it runs
// in (guarantee S13).
//
// The URL of each request is checked, including redirects. The address of its host is checked when the
// connection is made, so that a name cannot resolve to one address for the check and to another for the
// connection.
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
	MaxRedirects   = 3
	DefaultMaxBody = 5 << 20 // bytes, after decompression
	DefaultTimeout = 30 * time.Second

	dialTimeout = 10 * time.Second
	idleTimeout = 30 * time.Second
	maxHeader   = 256 << 10 // bytes of the headers of an answer
)

// Config says which hosts a client may reach. Hosts is required.
type Config struct {
	// Hosts are the allowed hosts: a name or an address, *.example.com for all names below example.com, or * for
	// every host. Inner addresses stay unreachable, even if they are listed.
	Hosts []string
	// PlainHTTP lists the Hosts, in the same forms, that may be reached without TLS.
	PlainHTTP []string
	// Ports are allowed in addition to 443, and to 80 for PlainHTTP.
	Ports []int
	// AllowInnerAddresses opens networks that are rejected otherwise: loopback, private, link-local and all other
	// networks that are not public. List as little as possible, such as 127.0.0.1/32. Whole address spaces are
	// rejected.
	AllowInnerAddresses []netip.Prefix

	MaxBody int64         // bytes of a response (0 means DefaultMaxBody, negative no limit)
	Timeout time.Duration // of a request with redirects and body (0 means DefaultTimeout, negative none)

	RootCAs  *x509.CertPool // (nil means the system's)
	Resolver *net.Resolver  // (nil means the system's)
}

// New returns a client that follows the rules of c. It uses no proxy, keeps no cookies and follows at most
// MaxRedirects. To another host it sends only the keptHeaders. Invalid settings are an error of mode
// user_invalid_input.
//
// A request that breaks a rule fails with policy_allowlist (host, scheme and port) or policy_security (all
// others). A response that is too long fails with resource_quota, from Do or while its body is read. The message
// names the rule and how to allow the request.
func New(c Config) (*http.Client, error) {
	g, err := newGuard(c)
	if err != nil {
		return nil, err
	}
	dialer := &net.Dialer{Timeout: dialTimeout, Resolver: c.Resolver, ControlContext: g.control}
	g.transport = &http.Transport{
		Proxy:                  nil, // one in the environment would connect on our behalf, unchecked
		DialContext:            dialer.DialContext,
		TLSClientConfig:        &tls.Config{RootCAs: c.RootCAs, MinVersion: tls.VersionTLS12},
		TLSHandshakeTimeout:    dialTimeout,
		ForceAttemptHTTP2:      true,
		MaxIdleConnsPerHost:    2,
		IdleConnTimeout:        idleTimeout,
		MaxResponseHeaderBytes: maxHeader,
	}
	client := &http.Client{Transport: g, CheckRedirect: checkRedirect, Timeout: DefaultTimeout}
	if c.Timeout != 0 {
		client.Timeout = max(c.Timeout, 0)
	}
	return client, nil
}

// keptHeaders are the headers that are sent to another host after a redirect. They are listed, because a
// credential can be in a header of any name.
var keptHeaders = []string{"Accept", "Accept-Language", "User-Agent"}

// checkRedirect limits the number of redirects. The guard checks their targets like those of all requests.
func checkRedirect(req *http.Request, via []*http.Request) error {
	if len(via) > MaxRedirects {
		return failure.Newf(failure.PolicySecurity, "egress.Redirect",
			"the server redirects more than %d times; ask for the last address itself", MaxRedirects)
	}
	req.Header.Del("Referer") // the address that was asked may hold a secret
	first := via[0].URL       // each redirect takes the headers of the first request
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

// Networks parses networks such as 10.0.0.0/8 from a configuration. An address counts as a network of one. The
// error has the mode user_invalid_input and names the invalid text.
func Networks(texts []string) ([]netip.Prefix, error) {
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
