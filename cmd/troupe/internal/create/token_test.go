package create

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/zap"

	"github.com/troupe-dev/troupe/cmd/troupe/internal/console"
	"github.com/troupe-dev/troupe/internal/identity"
	"github.com/troupe-dev/troupe/internal/identity/token"
	"github.com/troupe-dev/troupe/internal/process"
)

// The command prints a token on stdout and a file for --client-tokens on stderr. A server that reads the file
// accepts the token.
func TestNewToken_PrintsTokenAndFileEntry(t *testing.T) {
	for name, c := range map[string]struct {
		args []string
		want identity.Principal
	}{
		"client": {[]string{"ann", "--tenant", "acme"}, identity.Principal{Role: identity.Client, Name: "ann", Tenant: "acme"}},
		"breaks": {[]string{"a\u2028b: c\u0085d"}, identity.Principal{Role: identity.Client, Name: "a\u2028b: c\u0085d", Tenant: "default"}},
		"admin":  {[]string{"root", "--admin", "--ttl", "1h"}, identity.Principal{Role: identity.Admin, Name: "root", Tenant: "default"}},
	} {
		var out, told bytes.Buffer
		require.Equal(t, process.ExitOK, run(t.Context(), append([]string{"new", "token"}, c.args...), console.Terminal{Out: &out, Err: &told}), name)
		shown := strings.TrimSpace(out.String())
		require.Regexp(t, "^tr_[A-Za-z0-9_-]{43}$", shown)
		require.NotContains(t, told.String(), shown, "it is shown once")
		file := filepath.Join(t.TempDir(), "tokens.yaml")
		require.NoError(t, os.WriteFile(file, told.Bytes(), 0o600))
		f, err := token.Open(file, zap.NewNop())
		require.NoError(t, err)
		got, err := f.Principal(shown)
		require.NoError(t, err)
		require.Equal(t, c.want, got, name)
	}
	for says, args := range map[string][]string{
		"tenant: it must be":    {"ann", "--tenant", "a/b"},
		"--ttl: -1h0m0s":        {"ann", "--ttl=-1h"},
		"name: it must be 1 to": {"a\nb"},
	} {
		var out, told bytes.Buffer
		require.Equal(t, process.ExitUsage, run(t.Context(), append([]string{"new", "token"}, args...), console.Terminal{Out: &out, Err: &told}))
		require.Contains(t, told.String(), says)
		require.Empty(t, out.String())
	}
}
