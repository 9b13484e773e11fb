package overlay_test

import (
	"os"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/troupe-dev/troupe/test/overlay"
)

const repositoryRoot = "../.."

func TestChange_RejectsAMissingOrRepeatedSnippet(t *testing.T) {
	c := overlay.Change{File: "f.go", Find: "a", Replacement: "b"}
	text, err := c.Apply("xay")
	require.NoError(t, err)
	require.Equal(t, "xby", text)
	for _, text := range []string{"xy", "aa"} {
		_, err := c.Apply(text)
		require.ErrorContains(t, err, "f.go holds the snippet")
		require.ErrorContains(t, err, "the table of changes must follow")
	}
}

// Several changes to one file are applied together.
func TestApplyAll_AppliesAllChangesOfAFile(t *testing.T) {
	const file = "test/overlay/overlay_test.go"
	texts, err := overlay.ApplyAll(repositoryRoot, []overlay.Change{
		{File: file, Find: "package overlay" + "_test", Replacement: "package other"},
		{File: file, Find: "func TestChange_" + "Rejects", Replacement: "func TestOther"},
	})
	require.NoError(t, err)
	require.Len(t, texts, 1)
	require.Contains(t, texts[file], "package other\n")
	require.Contains(t, texts[file], "func TestOtherAMissingOrRepeatedSnippet")

	_, err = overlay.ApplyAll(repositoryRoot, []overlay.Change{{File: "absent.go", Find: "a"}})
	require.ErrorIs(t, err, os.ErrNotExist)
}
