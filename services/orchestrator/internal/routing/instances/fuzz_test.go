package instances

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// Reading an arbitrary file returns a snapshot or an error. It never panics.
func FuzzSnapshot(f *testing.F) {
	now := time.Now().UTC().Format(time.RFC3339)
	for _, text := range []string{
		"", "{}", "null", `{"saved":"` + now + `","instances":[]}`, `{"saved":"` + now + `","instances":[{}]}`,
		`{"saved":"9999-12-31T23:59:59Z","instances":[{"agent":"a","instanceId":"i","address":"127.0.0.1:1","capacity":-1,"state":"INSTANCE_STATE_READY"}]}`,
		`{"saved":"` + now + `","instances":["x"]}`,
	} {
		f.Add([]byte(text))
	}
	path := filepath.Join(f.TempDir(), "snapshot")
	f.Fuzz(func(t *testing.T, text []byte) {
		require.NoError(t, os.WriteFile(path, text, 0o600))
		known, _, err := SnapshotFile{Path: path}.read()
		if err != nil {
			require.ErrorContains(t, err, path)
			return
		}
		_, err = marshalSnapshot(known, nil)
		require.NoError(t, err)
	})
}
