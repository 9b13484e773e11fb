package token

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"github.com/troupe-dev/troupe/internal/grpcfailure"
	"github.com/troupe-dev/troupe/internal/identity"
	"github.com/troupe-dev/troupe/pkg/failure"
)

// writeEntries replaces the token file by a rename, as Kubernetes does when it updates a mounted secret.
func writeEntries(t *testing.T, path string, entries ...Entry) {
	t.Helper()
	text, err := FormatFile(entries...)
	require.NoError(t, err)
	replaceFile(t, path, string(text))
}

func replaceFile(t *testing.T, path, text string) {
	t.Helper()
	next := path + ".next"
	require.NoError(t, os.WriteFile(next, []byte(text), 0o600))
	require.NoError(t, os.Rename(next, path))
}

func issueToken(t *testing.T, name, tenant string, role identity.Role) (string, Entry) {
	t.Helper()
	value, e := New(Entry{Name: name, Tenant: tenant, Role: role})
	return value.Reveal(), e
}

func TestNew_MakesRandomTokens(t *testing.T) {
	a, _ := issueToken(t, "ann", "acme", identity.Client)
	b, e := issueToken(t, "ann", "acme", identity.Client)
	require.NotEqual(t, a, b)
	require.Len(t, a, len(Prefix)+43) // 256 bits
	require.True(t, strings.HasPrefix(a, "tr_"))
	require.NotContains(t, fmt.Sprintf("%+v", e), b)
	require.NoError(t, e.Check())
}

func TestFile_ReturnsThePrincipalOfAToken(t *testing.T) {
	path := filepath.Join(t.TempDir(), "tokens.yaml")
	ann, a := issueToken(t, "ann", "acme", identity.Client)
	root, r := issueToken(t, "root", "default", identity.Admin)
	writeEntries(t, path, a, r)
	f, err := Open(path, zap.NewNop())
	require.NoError(t, err)
	got, err := f.Principal(ann)
	require.NoError(t, err)
	require.Equal(t, identity.Principal{Role: identity.Client, Name: "ann", Tenant: "acme"}, got)
	got, err = f.Principal(root)
	require.NoError(t, err)
	require.Equal(t, identity.Principal{Role: identity.Admin, Name: "root", Tenant: "default"}, got)
	for _, other := range []string{"", "tr_", ann[:len(ann)-1], ann + "A", strings.ToUpper(ann), a.SHA256, "ann"} {
		got, err = f.Principal(other)
		require.True(t, failure.Is(err, failure.UserUnauthenticated), "%v", err)
		require.Zero(t, got)
		if len(other) > len(Prefix) {
			require.NotContains(t, fmt.Sprintf("%+v %v", err, grpcfailure.ToProto(err)), other)
		}
	}
}

func TestFile_RejectsExpiredTokens(t *testing.T) {
	path := filepath.Join(t.TempDir(), "tokens.yaml")
	ann, a := issueToken(t, "ann", "acme", identity.Client)
	a.Expires = time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC)
	writeEntries(t, path, a)
	f, err := Open(path, zap.NewNop())
	require.NoError(t, err)
	f.now = func() time.Time { return a.Expires.Add(-time.Nanosecond) }
	_, err = f.Principal(ann)
	require.NoError(t, err)
	f.now = func() time.Time { return a.Expires }
	_, err = f.Principal(ann)
	require.True(t, failure.Is(err, failure.UserUnauthenticated))
	require.ErrorContains(t, err, "this token has expired")
}

func TestFile_ReloadsValidFilesOnly(t *testing.T) {
	path := filepath.Join(t.TempDir(), "tokens.yaml")
	ann, a := issueToken(t, "ann", "acme", identity.Client)
	bob, b := issueToken(t, "bob", "acme", identity.Client)
	writeEntries(t, path, a)
	core, logs := observer.New(zap.InfoLevel)
	f, err := Open(path, zap.New(core))
	require.NoError(t, err)
	_, err = f.Principal(bob)
	require.Error(t, err)

	writeEntries(t, path, b)
	_, err = f.Principal(bob)
	require.NoError(t, err, "the new file lists it")
	_, err = f.Principal(ann)
	require.Error(t, err, "the new file does not list it")

	replaceFile(t, path, "tokens: [{name: "+ann+"}]")
	for range 3 {
		_, err = f.Principal(bob)
		require.NoError(t, err, "the last valid list stays in use")
	}
	require.NoError(t, os.Remove(path))
	for range 3 {
		_, err = f.Principal(bob)
		require.NoError(t, err)
	}
	require.Equal(t, 2, logs.FilterMessageSnippet("is invalid").Len(), "each fault is logged once")
	f.now = func() time.Time { return time.Now().Add(warnInterval) }
	_, err = f.Principal(bob)
	require.NoError(t, err)
	require.Equal(t, 3, logs.FilterMessageSnippet("is invalid").Len(), "and again after warnEvery")
	for range 2 {
		replaceFile(t, path, "tokens: [{nam: x}]")
		for range 3 {
			_, err = f.Principal(bob)
			require.NoError(t, err)
		}
	}
	require.Equal(t, 5, logs.FilterMessageSnippet("is invalid").Len(), "each new file, also one with the same fault")
	writeEntries(t, path, a)
	_, err = f.Principal(ann)
	require.NoError(t, err)
	for _, line := range logs.All() {
		for _, quoted := range []string{a.SHA256, b.SHA256, ann, bob} {
			require.NotContains(t, fmt.Sprint(line.Message, line.ContextMap()), quoted)
		}
	}
}

// An unreadable file is read again on the next call, because a check for changes does not detect new permissions.
func TestFile_RetriesUnreadableFiles(t *testing.T) {
	path := filepath.Join(t.TempDir(), "tokens.yaml")
	_, a := issueToken(t, "ann", "acme", identity.Client)
	writeEntries(t, path, a)
	f, err := Open(path, zap.NewNop())
	require.NoError(t, err)
	require.NoError(t, os.Remove(path))
	require.NoError(t, os.Mkdir(path, 0o700)) // unreadable for root, too
	_, err = f.current()
	require.ErrorContains(t, err, "is a directory")
	f.lastInfo, err = os.Stat(path)
	require.NoError(t, err)
	f.path = filepath.Join(t.TempDir(), "tokens.yaml")
	writeEntries(t, f.path, a)
	f.lastInfo, err = os.Stat(f.path)
	require.NoError(t, err)
	_, err = f.current()
	require.NoError(t, err)
}

func TestFile_MeasuresValidity(t *testing.T) {
	path := filepath.Join(t.TempDir(), "tokens.yaml")
	_, a := issueToken(t, "ann", "acme", identity.Client)
	writeEntries(t, path, a)
	f, err := Open(path, zap.NewNop())
	require.NoError(t, err)
	reader := metric.NewManualReader()
	meter := metric.NewMeterProvider(metric.WithReader(reader)).Meter("test")
	require.NoError(t, f.RegisterMetrics(meter))
	require.NoError(t, (*File)(nil).RegisterMetrics(meter))
	usable := func() int64 {
		var seen metricdata.ResourceMetrics
		require.NoError(t, reader.Collect(t.Context(), &seen))
		return seen.ScopeMetrics[0].Metrics[0].Data.(metricdata.Gauge[int64]).DataPoints[0].Value
	}
	require.EqualValues(t, 1, usable())
	replaceFile(t, path, "tokens: 7")
	require.EqualValues(t, 0, usable(), "without any call")
	writeEntries(t, path, a)
	require.EqualValues(t, 1, usable())
	require.NoError(t, os.Remove(path))
	require.EqualValues(t, 0, usable())
}

func TestOpen_LocatesTheFaultOfAFile(t *testing.T) {
	leaked, e := issueToken(t, "ann", "acme", identity.Client)
	entry := func(change func(*Entry)) string {
		other := e
		change(&other)
		text, err := FormatFile(other)
		require.NoError(t, err)
		return string(text)
	}
	twice, err := FormatFile(e, Entry{Name: "bob", Tenant: "acme", Role: identity.Client, SHA256: e.SHA256})
	require.NoError(t, err)
	digest := e.SHA256
	_, bob := issueToken(t, "bob", "acme", identity.Client)
	whole, err := FormatFile(bob, e)
	require.NoError(t, err)
	for text, want := range map[string]string{
		"tokens: {a: b}": "it is not a list of tokens",
		strings.Replace(entry(func(*Entry) {}), "sha256", "token", 1):       "want `tokens:` with entries",
		entry(func(e *Entry) { e.Name = "" }):                               "token 1: name: it must be",
		entry(func(e *Entry) { e.Tenant = "a/b" }):                          "token 1: tenant: it must be",
		entry(func(e *Entry) { e.Role = identity.Orchestrator }):            "token 1: role: it must be client or admin",
		entry(func(e *Entry) { e.SHA256 = leaked }):                         "token 1: sha256: it must be the 64 hex digits",
		entry(func(e *Entry) { e.Name = leaked }):                           "the token itself does not belong here",
		entry(func(e *Entry) { e.Tenant = leaked }):                         "the token itself does not belong here",
		entry(func(e *Entry) { e.Name, e.SHA256 = leaked, "" }):             "the token itself does not belong here",
		entry(func(e *Entry) { e.Role = identity.Role(leaked) }):            "role: it must be",
		entry(func(e *Entry) { e.Name, e.Tenant = digest, "" }):             "token 1: tenant: it must be",
		entry(func(e *Entry) { e.Name, e.SHA256 = digest+"0", digest+"0" }): "token 1: sha256: it must be",
		string(twice): "token 2 repeats token 1",
		// The error contains the position of the fault but not the text.
		string(whole) + "  x: y\n" + strings.TrimPrefix(string(whole), "tokens:\n"): "not a list of tokens, near line 10: want",
		string(whole) + "    expire: 2027-01-01\n":                                  "not a list of tokens, line 10: want",
		string(whole) + "    expires: soon " + leaked + "\n":                        "not a list of tokens, token 2 from line 6 on: want",
		string(whole) + "    expires: \"line 99: " + digest + "\"\n":                "not a list of tokens, token 2 from line 6 on: want",
		string(whole) + "    ? [" + leaked + "]\n    : 7\n":                         "not a list of tokens",
		string(whole) + "    expires: [" + leaked + "]\n":                           "not a list of tokens, line 10: want",
		string(whole) + "   " + leaked + ": [" + digest + "\n":                      "not a list of tokens, near line 10: want",
		"tokens: [{name: *" + leaked + "}]":                                         "not a list of tokens, near line 1: want",
	} {
		path := filepath.Join(t.TempDir(), "tokens.yaml")
		replaceFile(t, path, text)
		_, err := Open(path, zap.NewNop())
		require.ErrorContains(t, err, want)
		require.ErrorContains(t, err, "--client-tokens: "+path)
		require.NotContains(t, err.Error(), leaked)
		require.NotContains(t, err.Error(), e.SHA256)
	}
	_, err = Open(filepath.Join(t.TempDir(), "absent"), zap.NewNop())
	require.ErrorContains(t, err, "--client-tokens: ")
}

// BenchmarkPrincipal measures the cost of one call: a stat of the file, a digest and all comparisons.
func BenchmarkPrincipal(b *testing.B) {
	for _, count := range []int{1, 1000} {
		b.Run(fmt.Sprintf("tokens=%d", count), func(b *testing.B) {
			var entries []Entry
			var last string
			for n := range count {
				value, e := New(Entry{Name: fmt.Sprint(n), Tenant: "acme", Role: identity.Client})
				entries, last = append(entries, e), value.Reveal()
			}
			text, err := FormatFile(entries...)
			require.NoError(b, err)
			path := filepath.Join(b.TempDir(), "tokens.yaml")
			require.NoError(b, os.WriteFile(path, text, 0o600))
			f, err := Open(path, zap.NewNop())
			require.NoError(b, err)
			for b.Loop() {
				if _, err := f.Principal(last); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
