package builtin_test

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"go.yaml.in/yaml/v3"

	"github.com/troupe-dev/troupe/pkg/execution"
	"github.com/troupe-dev/troupe/pkg/failure"
	"github.com/troupe-dev/troupe/pkg/tool"
	"github.com/troupe-dev/troupe/services/worker/internal/builtin"
)

// fetchSettings returns a decode function for settings in YAML.
func fetchSettings(text string) func(any) error {
	return func(v any) error { return yaml.Unmarshal([]byte(text), v) }
}

// serveSite starts a web site and returns it with an http_fetch tool that may connect to it.
func serveSite(t *testing.T, more string, handler http.HandlerFunc) (fetch func(path string) (string, error)) {
	t.Helper()
	site := httptest.NewServer(handler)
	t.Cleanup(site.Close)
	u, err := url.Parse(site.URL)
	require.NoError(t, err)
	f, err := builtin.Catalog{}.Tool(builtin.HTTPFetch, fetchSettings(fmt.Sprintf(
		"{hosts: [127.0.0.1], plainHTTP: [127.0.0.1], ports: [%s], allowInnerAddresses: [127.0.0.1]%s}", u.Port(), more)))
	require.NoError(t, err)
	require.Equal(t, execution.Read, tool.EffectOf(f))
	require.NoError(t, f.(tool.Starter).Start(t.Context()))
	t.Cleanup(func() { require.NoError(t, f.(tool.Starter).Close()) })
	return func(path string) (string, error) {
		if strings.HasPrefix(path, "/") {
			path = site.URL + path
		}
		args, err := json.Marshal(map[string]string{"url": path})
		require.NoError(t, err)
		result, err := f.Call(t.Context(), args)
		return result.Text, err
	}
}

const pageHTML = `<!DOCTYPE html><html><head><title>On  bread</title><style>p{}</style><script>alert("x")</script></head>
<body><h1>Bread</h1><p>Flour,
water &amp; <b>salt</b>.</p><ul><li>Knead<li><p>Bake</p></ul><noscript>no</noscript><div hidden>hidden</div>
<p>See <a href="/more?x=1#part">more</a>, <a href="#top">top</a>, <a href="javascript:x()">run</a>.<br>Bye</p>
<table><tr><th>A<th>B<tr><td>1<td>2</table><pre>a
  b</pre></body></html>`

func TestFetch_ReturnsTheVisibleText(t *testing.T) {
	fetch := serveSite(t, "", func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/page":
			_, _ = io.WriteString(w, pageHTML)
		case "/json":
			w.Header().Set("Content-Type", "application/json")
			_, _ = io.WriteString(w, `{"a": "<b>"}`)
		case "/latin":
			w.Header().Set("Content-Type", "text/plain; charset=iso-8859-1")
			_, _ = w.Write([]byte("caf\xe9"))
		case "/empty":
			w.Header().Set("Content-Type", "text/html")
		case "/from":
			http.Redirect(w, r, "/json", http.StatusFound)
		case "/deep":
			w.Header().Set("Content-Type", "text/html")
			_, _ = io.WriteString(w, strings.Repeat("<div>", 500_000)+"deep")
		}
	})
	text, err := fetch("/page")
	require.NoError(t, err)
	site := text[strings.Index(text, "(http")+1 : strings.Index(text, "/more")]
	require.Equal(t, `# On bread

# Bread

Flour, water & salt.

- Knead
- Bake

See more (`+site+`/more?x=1), top, run.
Bye

A B
1 2

a
  b`, text)
	for path, want := range map[string]string{"/json": `{"a": "<b>"}`, "/from": `{"a": "<b>"}`, "/latin": "café", "/empty": ""} {
		text, err := fetch(path)
		require.NoError(t, err, path)
		require.Equal(t, want, text)
	}
	_, err = fetch("/deep") // it must end
	require.NoError(t, err)
}

func TestFetch_LimitsTheText(t *testing.T) {
	fetch := serveSite(t, ", maxBytes: 10", func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/huge" {
			_, _ = io.WriteString(w, strings.Repeat("x", 6<<20))
		}
		_, _ = io.WriteString(w, strings.Repeat("ä", 10))
	})
	text, err := fetch("/")
	require.NoError(t, err)
	require.Equal(t, "äääää\n… (cut: the page has 20 bytes of text)", text)
	_, err = fetch("/huge")
	require.ErrorContains(t, err, "the answer has more than 5242880 bytes")
}

func TestFetch_ReportsErrorsForTheModel(t *testing.T) {
	fetch := serveSite(t, "", func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/picture":
			w.Header().Set("Content-Type", "image/png")
		case "/inside":
			http.Redirect(w, r, "http://169.254.169.254/", http.StatusFound)
		default:
			http.NotFound(w, r)
		}
	})
	for path, want := range map[string]string{
		"/picture":                 "the page is image/png, which has no text",
		"/nowhere":                 "the server answered 404 Not Found",
		"/inside":                  "the host 169.254.169.254 is not allowed; hosts lists 127.0.0.1",
		"https://example.com/":     "the host example.com is not allowed",
		"http://127.0.0.1:1\r\n/":  "the url cannot be read; write it as https://host/path",
		"http://127.0.0.1/":        "the page cannot be had",
		"ftp://127.0.0.1/":         `the scheme "ftp" is not allowed; use https`,
		"https://127.0.0.1:22/ssh": "the port 22 is not allowed",
	} {
		_, err := fetch(path)
		require.ErrorContains(t, err, want, path)
		require.NotContains(t, failure.PlainMessage(err), "egress")
	}
	for text, want := range map[string]string{
		"{}":                                  "with.hosts is missing",
		"{hosts: [a.test], maxBytes: 999999}": "with.maxBytes is 999999; use 1 to 262144",
		"{hosts: [a.test], allowInnerAddresses: [inside]}": `with.allowInnerAddresses[0] is "inside"`,
		"{hosts: ['http://a.test']}":                       `with.hosts[0] is "http://a.test"`,
	} {
		_, err := builtin.Catalog{}.Tool(builtin.HTTPFetch, fetchSettings(text))
		require.ErrorContains(t, err, want)
		require.True(t, failure.Is(err, failure.UserInvalidInput))
	}
}
