package bugbuild_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/troupe-dev/troupe/test/chaos/bugbuild"
	"github.com/troupe-dev/troupe/test/overlay"
)

// The compiler sees the change, and the source file stays the same.
func TestBuild_AppliesTheChange(t *testing.T) {
	const file = "test/chaos/worker/main.go"
	before, err := os.ReadFile(filepath.Join(bugbuild.RepositoryRoot(), file))
	require.NoError(t, err)
	err = bugbuild.Build(t.TempDir(), []overlay.Change{{File: file, Find: `scriptedagent.New(client)`, Replacement: `nothing`}}, bugbuild.Worker)
	require.ErrorContains(t, err, "undefined: nothing")
	after, err := os.ReadFile(filepath.Join(bugbuild.RepositoryRoot(), file))
	require.NoError(t, err)
	require.Equal(t, string(before), string(after))
}
