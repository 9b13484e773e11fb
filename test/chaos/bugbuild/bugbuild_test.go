package bugbuild_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/troupe-dev/troupe/test/chaos/bugbuild"
)

func TestChange_RejectsAMissingOrRepeatedSnippet(t *testing.T) {
	c := bugbuild.Change{File: "f.go", Find: "a", Replacement: "b"}
	text, err := c.Apply("xay")
	require.NoError(t, err)
	require.Equal(t, "xby", text)
	for _, text := range []string{"xy", "aa"} {
		_, err := c.Apply(text)
		require.ErrorContains(t, err, "f.go holds the snippet")
		require.ErrorContains(t, err, "the table of planted bugs must follow")
	}
}

// Several changes to one file are applied together.
func TestApplyAll_AppliesAllChangesOfAFile(t *testing.T) {
	const file = "test/chaos/bugbuild/bugbuild_test.go"
	texts, err := bugbuild.ApplyAll([]bugbuild.Change{
		{File: file, Find: "package bugbuild" + "_test", Replacement: "package other"},
		{File: file, Find: "func TestChange_" + "Rejects", Replacement: "func TestOther"},
	})
	require.NoError(t, err)
	require.Len(t, texts, 1)
	require.Contains(t, texts[file], "package other\n")
	require.Contains(t, texts[file], "func TestOtherAMissingOrRepeatedSnippet")

	_, err = bugbuild.ApplyAll([]bugbuild.Change{{File: "absent.go", Find: "a"}})
	require.ErrorIs(t, err, os.ErrNotExist)
}

// The compiler sees the change, and the source file stays the same.
func TestBuild_AppliesTheChange(t *testing.T) {
	const file = "test/chaos/worker/main.go"
	before, err := os.ReadFile(filepath.Join(bugbuild.RepositoryRoot(), file))
	require.NoError(t, err)
	err = bugbuild.Build(t.TempDir(), []bugbuild.Change{{File: file, Find: `const Agent = "chaos"`, Replacement: `const Agent = nothing`}}, bugbuild.Worker)
	require.ErrorContains(t, err, "undefined: nothing")
	after, err := os.ReadFile(filepath.Join(bugbuild.RepositoryRoot(), file))
	require.NoError(t, err)
	require.Equal(t, string(before), string(after))
}
