package egress_test

import (
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// attack is a URL that leads to the canary, or to another inner address. In the URL, P stands for the port of the
// canary. A leading R with a status, such as R302=, stands for a redirect to the rest of the URL.
type attack struct{ name, url, rule string }

// Each constant is a part of the error message of one rule.
const (
	ruleInnerAddress = "inner address"
	ruleNumber       = "is a number, but no IP address"
	ruleNotASCII     = "is not ASCII"
	ruleNoName       = "is not a DNS name"
	ruleUserinfo     = "user name or password"
	ruleScheme       = "the scheme"
	ruleNoHost       = "the URL has no host"
	rulePort         = "the port"
	ruleZone         = "bound to an interface"
	ruleFinalDot     = "ends with a dot"
	ruleUnparsed     = "parse \""
	ruleRedirects    = "redirects more than"
)

var attacks = []attack{
	// Loopback as it is.
	{"loopback", "http://127.0.0.1:P/", ruleInnerAddress},
	{"another loopback", "http://127.8.8.8:P/", ruleInnerAddress},
	{"localhost", "http://localhost:P/", ruleInnerAddress},
	{"IPv6 loopback", "http://[::1]:P/", ruleInnerAddress},
	{"IPv6 loopback in full", "http://[0:0:0:0:0:0:0:1]:P/", ruleInnerAddress},
	{"this host", "http://0.0.0.0:P/", ruleInnerAddress},
	{"this host in IPv6", "http://[::]:P/", ruleInnerAddress},
	{"this network", "http://0.1.2.3:P/", ruleInnerAddress},

	// These are spellings of IPv4 addresses that only C programs accept.
	{"zero", "http://0:P/", ruleNumber},
	{"decimal", "http://2130706433:P/", ruleNumber},
	{"octal", "http://017700000001:P/", ruleNumber},
	{"hex", "http://0x7f000001:P/", ruleNumber},
	{"hex in parts", "http://0x7f.0x0.0x0.0x1:P/", ruleNumber},
	{"octal in parts", "http://0177.0.0.01:P/", ruleNumber},
	{"leading zeros", "http://127.000.000.001:P/", ruleNumber},
	{"short", "http://127.1:P/", ruleNumber},
	{"three parts", "http://127.0.1:P/", ruleNumber},
	{"mixed", "http://0x7f.1:P/", ruleNumber},
	{"overflow", "http://383.256.256.257:P/", ruleNumber},
	{"capital hex", "http://0X7F000001:P/", ruleNumber},

	// IPv4 inside of IPv6.
	{"mapped", "http://[::ffff:127.0.0.1]:P/", ruleInnerAddress},
	{"mapped in hex", "http://[::ffff:7f00:1]:P/", ruleInnerAddress},
	{"mapped metadata", "http://[::ffff:a9fe:a9fe]/", ruleInnerAddress},
	{"compatible", "http://[::127.0.0.1]:P/", ruleInnerAddress},
	{"NAT64", "http://[64:ff9b::127.0.0.1]:P/", ruleInnerAddress},
	{"NAT64 of a network", "http://[64:ff9b:1::a9fe:a9fe]:P/", ruleInnerAddress},
	{"6to4", "http://[2002:7f00:1::]:P/", ruleInnerAddress},
	{"Teredo", "http://[2001:0:4136:e378:8000:63bf:80ff:fffe]:P/", ruleInnerAddress},
	{"ISATAP", "http://[2606:4700::5efe:7f00:1]:P/", ruleInnerAddress},
	{"zone", "http://[fe80::1%25lo]:P/", ruleZone},
	{"zone of loopback", "http://[::1%25lo]:P/", ruleZone},
	{"zone that is a host", "http://[fe80::1%25.allowed.test]:P/", ruleZone},

	// Networks inside.
	{"private 10", "http://10.0.0.1:P/", ruleInnerAddress},
	{"private 172", "http://172.31.255.254:P/", ruleInnerAddress},
	{"private 192", "http://192.168.1.1:P/", ruleInnerAddress},
	{"carrier", "http://100.64.0.1:P/", ruleInnerAddress},
	{"unique local", "http://[fd12:3456::1]:P/", ruleInnerAddress},
	{"link-local", "http://[fe80::1]:P/", ruleInnerAddress},
	{"site-local", "http://[fec0::1]:P/", ruleInnerAddress},
	{"multicast", "http://224.0.0.1:P/", ruleInnerAddress},
	{"IPv6 multicast", "http://[ff02::1]:P/", ruleInnerAddress},
	{"broadcast", "http://255.255.255.255:P/", ruleInnerAddress},
	{"reserved", "http://240.0.0.1:P/", ruleInnerAddress},
	{"benchmarks", "http://198.18.0.1:P/", ruleInnerAddress},

	// These are the addresses at which clouds serve credentials.
	{"metadata", "http://169.254.169.254/latest/meta-data/", ruleInnerAddress},
	{"metadata as a number", "http://2852039166/latest/meta-data/", ruleNumber},
	{"metadata of AWS in IPv6", "http://[fd00:ec2::254]/latest/meta-data/", ruleInnerAddress},
	{"metadata of Google", "http://metadata.google.internal/computeMetadata/v1/", ruleInnerAddress},
	{"metadata of Alibaba", "http://100.100.100.200/latest/meta-data/", ruleInnerAddress},
	{"metadata of Oracle", "http://192.0.0.192/latest/", ruleInnerAddress},
	{"wire server of Azure", "http://168.63.129.16/", ruleInnerAddress},

	// These are hosts that other programs interpret as a different host.
	{"enclosed numbers", "http://①②⑦.⓪.⓪.①:P/", ruleNotASCII},
	{"enclosed letters", "http://ⓛⓞⓒⓐⓛⓗⓞⓢⓣ:P/", ruleNotASCII},
	{"ideographic dots", "http://127。0。0。1:P/", ruleNotASCII},
	{"full width", "http://１２７.０.０.１:P/", ruleNotASCII},
	{"soft hyphen", "http://local\u00adhost:P/", ruleNotASCII},
	{"trailing dot", "http://localhost.:P/", ruleFinalDot},
	{"trailing dot of a number", "http://127.0.0.1.:P/", ruleFinalDot},
	{"two dots", "http://127.0.0.1..:P/", ruleFinalDot},
	{"user", "http://allowed.test@127.0.0.1:P/", ruleUserinfo},
	{"user and password", "http://allowed.test:80@127.0.0.1:P/", ruleUserinfo},
	{"user behind a fragment", "http://127.0.0.1:P#@allowed.test/", ruleInnerAddress},
	{"escaped at", "http://allowed.test%40127.0.0.1:P/", ruleUnparsed},
	{"backslash", `http://allowed.test\@127.0.0.1:P/`, ruleUnparsed},
	{"backslashes for slashes", `http:\\127.0.0.1:P/`, ruleNoHost},
	{"backslash behind the host", `http://127.0.0.1:P\.allowed.test/`, ruleUnparsed},
	{"no slashes", "http:127.0.0.1:P/", ruleNoHost},
	{"three slashes", "http:///127.0.0.1:P/", ruleNoHost},
	{"no scheme", "//127.0.0.1:P/", ruleScheme},
	{"semicolon", "http://127.0.0.1;.allowed.test:P/", ruleNoName},
	{"comma", "http://127.0.0.1,allowed.test:P/", ruleNoName},
	{"line break", "http://127.0.0.1:P/\r\nHost: allowed.test", ruleUnparsed},
	{"escaped line break in the host", "http://127.0.0.1%0d%0aX:P/", ruleUnparsed},
	{"tab in the host", "http://127.0.0\t.1:P/", ruleUnparsed},
	{"null in the host", "http://127.0.0.1\x00.allowed.test:P/", ruleUnparsed},
	{"escaped host", "http://%31%32%37.0.0.1:P/", ruleUnparsed},

	// Ports and schemes.
	{"port of Redis", "http://allowed.test:6379/", rulePort},
	{"huge port", "http://allowed.test:99999/", rulePort},
	{"port that wraps around", "http://127.0.0.1:4294967376/", rulePort},
	{"negative port", "http://allowed.test:-1/", ruleUnparsed},
	{"empty port", "http://127.0.0.1:/", ruleInnerAddress},
	{"file", "file:///etc/passwd", ruleScheme},
	{"gopher", "gopher://127.0.0.1:P/_GET%20/", ruleScheme},
	{"ftp", "ftp://127.0.0.1:P/", ruleScheme},
	{"unix", "unix:///var/run/docker.sock", ruleScheme},
	{"data", "data:text/plain,hello", ruleScheme},
	{"jar", "jar:http://127.0.0.1:P!/", ruleScheme},
	{"capital file", "FILE:///etc/passwd", ruleScheme},

	// These names resolve to inner addresses. Only the test's resolver knows them.
	{"a name of loopback", "http://inside.test:P/", ruleInnerAddress},
	{"a name of IPv6 loopback", "http://inside6.test:P/", ruleInnerAddress},
	{"a name of a mapped address", "http://mapped.test:P/", ruleInnerAddress},
	{"nip.io", "http://127.0.0.1.nip.io:P/", ruleInnerAddress},
	{"nip.io in hex", "http://7f000001.nip.io:P/", ruleInnerAddress},
	{"sslip.io of metadata", "http://169-254-169-254.sslip.io/", ruleInnerAddress},
	{"localtest.me", "http://app.localtest.me:P/", ruleInnerAddress},
	{"capitals", "http://INSIDE.TEST:P/", ruleInnerAddress},
	{"all addresses inside", "http://many.test:P/", ruleInnerAddress},
	{"a service of Kubernetes", "https://kubernetes.default.svc/api", ruleInnerAddress},

	// These are redirects with every status that a client follows.
	{"301", "R301=http://127.0.0.1:P/", ruleInnerAddress},
	{"302", "R302=http://127.0.0.1:P/", ruleInnerAddress},
	{"303", "R303=http://127.0.0.1:P/", ruleInnerAddress},
	{"307", "R307=http://127.0.0.1:P/", ruleInnerAddress},
	{"308", "R308=http://127.0.0.1:P/", ruleInnerAddress},
	{"redirect to a name inside", "R302=http://inside.test:P/", ruleInnerAddress},
	{"redirect without scheme", "R302=//127.0.0.1:P/", ruleInnerAddress},
	{"redirect to a number", "R302=http://2130706433:P/", ruleNumber},
	{"redirect to metadata", "R307=http://169.254.169.254/latest/meta-data/", ruleInnerAddress},
	{"redirect to a file", "R302=file:///etc/passwd", ruleScheme},
	{"redirect with a user", "R302=http://allowed.test@127.0.0.1:P/", ruleUserinfo},
	{"redirect to mapped", "R308=http://[::ffff:7f00:1]:P/", ruleInnerAddress},
	{"redirect to another port", "R302=http://allowed.test:6379/", rulePort},
	{"redirect through a redirect", "R302=R302=http://127.0.0.1:P/", ruleInnerAddress},
	{"four redirects", "R302=R302=R302=R302=http://127.0.0.1:P/", ruleRedirects},
}

// attackHosts maps the host names of the attacks to addresses. Go would not resolve some of them. They show what
// another client would reach.
var attackHosts = map[string]string{
	"inside.test": innerAddress, "inside6.test": "::1", "mapped.test": "::ffff:127.0.0.1", "127.0.0.1.nip.io": innerAddress,
	"7f000001.nip.io": innerAddress, "169-254-169-254.sslip.io": "169.254.169.254", "app.localtest.me": innerAddress,
	"metadata.google.internal": "169.254.169.254", "kubernetes.default.svc": "10.96.0.1", "localhost": innerAddress,
	"0": innerAddress, "2130706433": innerAddress, "017700000001": innerAddress, "0x7f000001": innerAddress, "0x7f.0x0.0x0.0x1": innerAddress,
	"0177.0.0.01": innerAddress, "127.000.000.001": innerAddress, "127.1": innerAddress, "127.0.1": innerAddress, "0x7f.1": innerAddress,
	"0X7F000001": innerAddress, "2852039166": "169.254.169.254",
}

func (a attack) requestURL(w *testNetwork) string {
	target := strings.ReplaceAll(a.url, "P", strconv.Itoa(w.port))
	status, to, ok := strings.Cut(strings.TrimPrefix(target, "R"), "=")
	if !ok || !strings.HasPrefix(target, "R") {
		return target
	}
	return fmt.Sprintf("http://allowed.test:%d/%s/%s", w.port, status, attack{url: to}.requestURL(w))
}

// serveRedirect answers a path such as /302/target with a redirect to the target, and any other path with a page.
func serveRedirect(rw http.ResponseWriter, r *http.Request) {
	status, target, ok := strings.Cut(strings.TrimPrefix(r.URL.Path, "/"), "/")
	code, err := strconv.Atoi(status)
	if !ok || err != nil {
		_, _ = io.WriteString(rw, "public page")
		return
	}
	rw.Header().Set("Location", target)
	rw.WriteHeader(code)
}

// No attack reaches an inner address (guarantee S13). A naive client reaches the canary with the same URLs, which
// shows that the attacks are real.
func TestClient_ReachesNoInnerAddress(t *testing.T) {
	w := newTestNetwork(t, http.HandlerFunc(serveRedirect))
	for name, address := range attackHosts {
		w.setAddresses(name, address)
	}
	w.setAddresses("many.test", innerAddress, "::1", "10.0.0.1")
	client, naive := w.restrictedClient(t), w.naiveClient(t)
	require.GreaterOrEqual(t, len(attacks), 60)

	worked := 0 // attacks that reach the canary with a naive client
	for _, tr := range attacks {
		t.Run(tr.name, func(t *testing.T) {
			body, err := getBody(t, client, tr.requestURL(w))
			require.Zero(t, w.canaryRequests.Load(), "the canary was reached")
			require.ErrorContains(t, err, tr.rule)
			require.Empty(t, body)

			if body, err := getBody(t, naive, tr.requestURL(w)); err == nil && body == "the secret" {
				worked++
			}
			w.canaryRequests.Store(0)
		})
	}
	require.GreaterOrEqual(t, worked, 30, "too few attacks reach the canary with a naive client")
	t.Logf("%d attacks, of which %d succeed with a naive client", len(attacks), worked)

	body, err := getBody(t, client, fmt.Sprintf("http://allowed.test:%d/", w.port))
	require.NoError(t, err, "the same client reaches what it may")
	require.Equal(t, "public page", body)
	body, err = getBody(t, client, fmt.Sprintf("http://allowed.test:%d/302/http://allowed.test:%d/", w.port, w.port))
	require.NoError(t, err, "and follows a redirect there")
	require.Equal(t, "public page", body)
}

// getBody returns the body of the page at the target.
func getBody(t *testing.T, client *http.Client, target string) (string, error) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, target, nil)
	if err != nil {
		return "", err
	}
	resp, err := client.Do(req)
	if err != nil {
		return "", err
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	return string(text), err
}
