package sessionlog

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

// Any edited log is either read or rejected without a panic. Any text becomes a single line of the plain log.
func FuzzLog(f *testing.F) {
	for _, text := range []string{"", "turns: []\n", "name: x\nturns:\n- input: |\n    a\n", "a: &a [*a]\n", "\xff", "turns: {}\n", "a\nb\x1b[2J\u2028"} {
		f.Add(text)
	}
	folder := f.TempDir()
	log, err := Open(Config{Agent: "agent", Folder: folder, Quiet: true})
	require.NoError(f, err)
	f.Cleanup(func() { require.NoError(f, log.Close()) })
	path := filepath.Join(folder, logPath("agent", "name"))
	require.NoError(f, os.MkdirAll(filepath.Dir(path), 0o700))
	file := filepath.Join(folder, log.runPath("name", 1))
	require.NoError(f, os.MkdirAll(filepath.Dir(file), 0o700))
	f.Fuzz(func(t *testing.T, text string) {
		require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
		require.NoError(t, os.WriteFile(file, []byte(text), 0o600))
		if kept, err := log.readLog("name"); err == nil && kept != nil {
			require.NoError(t, log.writeLog("name", kept))
		}
		_ = log.readRun(&run{name: "name", number: 1}) // an error is as good as success
		require.NotContains(t, singleLine(text), "\n")
		require.NotContains(t, slug(text), "/")
		require.NotContains(t, safeName(text), "/")
	})
}
