package memory_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/troupe-dev/troupe/pkg/failure"
	"github.com/troupe-dev/troupe/pkg/memory"
)

func TestCheckArtifactName_ErrorSuggestsValidName(t *testing.T) {
	for _, name := range []string{"a", "report 2.md", "..", "ä", "app:a", "users", "user:a", strings.Repeat("n", memory.MaxArtifactNameBytes)} {
		require.NoError(t, memory.CheckArtifactName("test", name))
	}
	for name, says := range map[string]string{
		"":         "1 to 256 bytes",
		"\xff":     "UTF-8",
		"dir/a":    "no /",
		`dir\a`:    `no \`,
		"/":        "no /",
		"user:":    "no name",
		"user:a/b": "no /",
		strings.Repeat("n", memory.MaxArtifactNameBytes+1): "1 to 256 bytes",
	} {
		err := memory.CheckArtifactName("test", name)
		require.Equal(t, failure.UserInvalidInput, failure.ModeOf(err), name)
		require.ErrorContains(t, err, says, name)
	}
}
