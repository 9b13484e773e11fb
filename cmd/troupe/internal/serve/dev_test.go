package serve

import (
	"bytes"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/troupe-dev/troupe/cmd/troupe/internal/console"
	"github.com/troupe-dev/troupe/internal/process"
)

// The command rejects an address that other machines can reach, and does so before it writes any file.
func TestDev_RejectsOpenAddressWithoutFlag(t *testing.T) {
	data := filepath.Join(t.TempDir(), "data")
	var out bytes.Buffer
	require.Equal(t, process.ExitError, runCommand(t.Context(), []string{"dev", "--grpc-addr", "0.0.0.0:0", "--data-dir", data},
		console.Terminal{Out: &out, Err: &out}))
	require.Contains(t, out.String(), "--insecure-plaintext-beyond-loopback")
	require.NoDirExists(t, data)
}
