package operate

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel/metric/noop"
	"go.uber.org/zap"

	"github.com/troupe-dev/troupe/cmd/troupe/internal/console"
	"github.com/troupe-dev/troupe/internal/audit"
)

func TestAudit_VerifiesAndShowsLog(t *testing.T) {
	path := filepath.Join(t.TempDir(), "audit.jsonl")
	log, err := audit.New(audit.Config{Path: path, Name: "memory", Log: zap.NewNop(), Meter: noop.Meter{}})
	require.NoError(t, err)
	log.Record(audit.Entry{Kind: audit.Denied, Actor: "worker research", Action: "/a.B/C", Result: "policy_security"})
	log.Record(audit.Entry{Kind: audit.Admin, Actor: "admin ada", Action: "/a.B/D", Object: "research", Result: "ok"})
	require.NoError(t, log.Close())
	whole, err := audit.Verify([]string{path}, "", nil)
	require.NoError(t, err)
	told := func(want int, args ...string) string {
		var out bytes.Buffer
		require.Equal(t, want, run(t.Context(), append([]string{"audit"}, args...), console.Terminal{Out: &out, Err: &out}), out.String())
		return out.String()
	}
	text := told(0, "verify", path)
	require.Contains(t, text, "4 lines, number 1 to 4, from ")
	require.Contains(t, text, "head  "+whole.Head)
	require.Contains(t, text, "with --head it would show")
	require.Contains(t, told(0, "verify", path, "--head", whole.Head), "the head that you know is in it")
	require.Contains(t, told(1, "verify", path, "--head", strings.Repeat("0", 64)), "lines are missing at the end")
	for _, no := range []string{"zz", whole.Head[:12], whole.Head + "0", strings.Repeat("g", 64), strings.Repeat("A", 64)} {
		text = told(2, "verify", path, "--head", no)
		require.Contains(t, text, "--head: a hash has 64 digits of 0-9 and a-f; give the whole head")
		require.NotContains(t, text, "BROKEN")
	}

	text = told(0, "show", path, "--kind", "admin")
	require.Contains(t, text, "admin ada")
	require.NotContains(t, text, "worker research")
	for _, kind := range []audit.Kind{audit.Denied, audit.Violation, audit.Admin, audit.Lifecycle, audit.Takeover, audit.Credential, audit.LogItself} {
		require.Contains(t, told(0, "show", path, "--kind", string(kind)), "TIME", kind)
	}
	require.Contains(t, told(2, "show", path, "--kind", "foo"), "--kind must be one of ")
	require.Contains(t, told(0, "show", path, "--actor", "research", "--since", "1h"), "worker research")

	stored, err := os.ReadFile(path)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(path, bytes.Replace(stored, []byte("admin ada"), []byte("admin bob"), 1), 0o600))
	require.Contains(t, told(1, "verify", path), "BROKEN  "+path+":4: line 3 was changed")
	require.Contains(t, told(1, "show", path), path+":4:")
}
