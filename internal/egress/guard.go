package egress

import (
	"context"
	"fmt"
	"net/http"
	"net/netip"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"github.com/troupe-dev/troupe/pkg/failure"
)

// guard is the http.RoundTripper of a client. It checks each request before it is sent, and each address before a
// connection is made. It is safe for concurrent use.
type guard struct {
	transport    *http.Transport
	hosts        []string
	plainHosts   []string
	ports        []int
	innerAllowed []netip.Prefix
	maxBodyBytes int64
}

// minIPv4PrefixBits and minIPv6PrefixBits are the shortest prefixes that AllowInnerAddresses accepts, so that it cannot
// open a whole address space.
const (
	minIPv4PrefixBits = 8
	minIPv6PrefixBits = 7
)

func newGuard(c Config) (*guard, error) {
	g := &guard{ports: c.Ports, maxBodyBytes: c.MaxBodyBytes}
	if g.maxBodyBytes == 0 {
		g.maxBodyBytes = DefaultMaxBodyBytes
	}
	if len(c.Hosts) == 0 {
		return nil, newConfigError("hosts is missing: list those that may be asked, such as example.com or *.example.com")
	}
	var err error
	if g.hosts, err = checkHostPatterns("hosts", c.Hosts); err != nil {
		return nil, err
	}
	if g.plainHosts, err = checkHostPatterns("plainHTTP", c.PlainHTTP); err != nil {
		return nil, err
	}
	for i, port := range c.Ports {
		if port < 1 || port > 65535 {
			return nil, newConfigError("ports[%d] is %d; use 1 to 65535", i, port)
		}
	}
	for i, p := range c.AllowInnerAddresses {
		if !p.IsValid() || p.Addr().Is4() && p.Bits() < minIPv4PrefixBits || p.Addr().Is6() && p.Bits() < minIPv6PrefixBits {
			return nil, newConfigError("allowInnerAddresses[%d] is %s; list the networks that are meant, such as 127.0.0.1/32", i, p)
		}
		g.innerAllowed = append(g.innerAllowed, p.Masked())
	}
	return g, nil
}

// checkHostPatterns returns the patterns of a list in lower case, or an error that names the list and the first pattern
// that is not valid.
func checkHostPatterns(list string, patterns []string) ([]string, error) {
	var lower []string
	for i, pattern := range patterns {
		p := strings.ToLower(pattern)
		if p != "*" && hostProblem(strings.TrimPrefix(p, "*.")) != "" {
			return nil, newConfigError("%s[%d] is %q; use a name such as example.com, *.example.com for all below it, or *; no scheme, port or path",
				list, i, pattern)
		}
		lower = append(lower, p)
	}
	return lower, nil
}

func newConfigError(format string, args ...any) error {
	return failure.Newf(failure.UserInvalidInput, "egress.New", format, args...)
}

// RoundTrip implements http.RoundTripper.
func (g *guard) RoundTrip(req *http.Request) (*http.Response, error) {
	if err := g.checkRequest(req); err != nil {
		if req.Body != nil {
			_ = req.Body.Close() // http.RoundTripper requires it; err is more important than an error of Close
		}
		return nil, err
	}
	resp, err := g.transport.RoundTrip(req)
	if err != nil || g.maxBodyBytes < 0 {
		return resp, err
	}
	resp.Body = &limitedBody{ReadCloser: resp.Body, remaining: g.maxBodyBytes, limit: g.maxBodyBytes}
	return resp, nil
}

// CloseIdleConnections closes the idle connections of the transport. http.Client calls it.
func (g *guard) CloseIdleConnections() { g.transport.CloseIdleConnections() }

func newRejectedError(mode failure.Mode, format string, args ...any) *failure.Error {
	return failure.Newf(mode, "egress.Request", format, args...)
}

// checkRequest returns an error if the target of the request breaks a rule.
func (g *guard) checkRequest(req *http.Request) error {
	u := req.URL
	host := strings.ToLower(u.Hostname())
	switch {
	case u.Scheme != "https" && u.Scheme != "http":
		return newRejectedError(failure.PolicyAllowlist, "the scheme %q is not allowed; use https", u.Scheme)
	case u.User != nil:
		return newRejectedError(failure.PolicySecurity, "the URL holds a user name or password; leave out what is before the @")
	case u.Opaque != "" || host == "":
		return newRejectedError(failure.PolicySecurity, "the URL has no host; write it as https://host/path")
	case req.Host != "" && !strings.EqualFold(req.Host, u.Host):
		return newRejectedError(failure.PolicySecurity, "the Host header is %q and the URL says %q; leave the header out", req.Host, u.Host)
	}
	if problem := hostProblem(host); problem != "" {
		return newRejectedError(failure.PolicySecurity, "the host %q %s", u.Hostname(), problem)
	}
	if !matchesAnyPattern(g.hosts, host) {
		return newRejectedError(failure.PolicyAllowlist, "the host %s is not allowed; hosts lists %s", host, strings.Join(g.hosts, ", "))
	}
	if u.Scheme == "http" && !matchesAnyPattern(g.plainHosts, host) {
		return newRejectedError(failure.PolicyAllowlist, "plain http is not allowed for %s; use https, or list it under plainHTTP", host)
	}
	if err := g.checkPort(u); err != nil {
		return err
	}
	if a, err := netip.ParseAddr(host); err == nil {
		return g.checkAddress(a)
	}
	return nil
}

func (g *guard) checkPort(u *url.URL) error {
	port, err := strconv.Atoi(u.Port())
	switch {
	case u.Port() == "":
		return nil // the default of the scheme
	case err != nil:
		return newRejectedError(failure.PolicySecurity, "the port %q is not a number", u.Port())
	case port == 443, port == 80 && u.Scheme == "http", slices.Contains(g.ports, port):
		return nil
	}
	return newRejectedError(failure.PolicyAllowlist, "the port %d is not allowed; leave it out, or list it under ports", port)
}

// checkConnection checks the address of each new connection, after the name is resolved.
func (g *guard) checkConnection(_ context.Context, network, address string, _ syscall.RawConn) error {
	to, err := netip.ParseAddrPort(address)
	if err != nil || network != "tcp4" && network != "tcp6" {
		return newRejectedError(failure.PolicySecurity, "%s %s is not an address of an HTTP server", network, address)
	}
	return g.checkAddress(to.Addr())
}

func (g *guard) checkAddress(a netip.Addr) error {
	why := innerAddressKind(a)
	if why == "" {
		return nil
	}
	bare := a.Unmap()
	if bare.Zone() == "" && slices.ContainsFunc(g.innerAllowed, func(p netip.Prefix) bool { return p.Contains(bare) }) {
		return nil
	}
	return newRejectedError(failure.PolicySecurity,
		"%s is an inner address (%s) and out of reach; use a public one, or list it under allowInnerAddresses if it is meant", a, why)
}

// matchesAnyPattern reports whether one of the patterns matches the host.
func matchesAnyPattern(patterns []string, host string) bool {
	return slices.ContainsFunc(patterns, func(p string) bool {
		suffix, hasWildcard := strings.CutPrefix(p, "*")
		return p == host || hasWildcard && (suffix == "" || strings.HasSuffix(host, suffix) && len(host) > len(suffix))
	})
}

var (
	hostPattern   = regexp.MustCompile(`^[a-z0-9_]([a-z0-9_-]*[a-z0-9_])?(\.[a-z0-9_]([a-z0-9_-]*[a-z0-9_])?)*$`)
	numberPattern = regexp.MustCompile(`(^|\.)(0x[0-9a-f]*|[0-9]+)$`)
)

const maxHostLength = 253 // characters of a DNS name

// hostProblem returns why a lower-case host is invalid ("" if it is valid). It rejects forms that programs
// interpret in different ways.
func hostProblem(host string) string {
	if a, err := netip.ParseAddr(host); err == nil {
		if a.Zone() != "" {
			return "is bound to an interface; remove the % and everything after it"
		}
		return ""
	}
	switch {
	case len(host) > maxHostLength:
		return fmt.Sprintf("has %d characters; at most %d are allowed", len(host), maxHostLength)
	case strings.HasSuffix(host, "."):
		return "ends with a dot; leave it out"
	case strings.ContainsFunc(host, func(r rune) bool { return r > '~' }):
		return "is not ASCII; write it in its xn-- form"
	case !hostPattern.MatchString(host):
		return "is not a DNS name; use letters, digits, hyphens and dots"
	case numberPattern.MatchString(host):
		return "is a number, but no IP address as it is usually written; use four decimal numbers, or a name"
	}
	return ""
}
