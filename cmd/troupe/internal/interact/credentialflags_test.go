package interact

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/troupe-dev/troupe/pkg/failure"
)

func TestCredentialFlags_ReadWholeCredential(t *testing.T) {
	t.Setenv("TOKEN", " as it is;=:\n")
	long := strings.Repeat("x", maxCredentialBytes)
	dir := t.TempDir()
	for name, content := range map[string]string{
		"unix": "token\n", "windows": "token\r\n", "lines": "a\nb\n\n", "long": long + "\r\n",
		"longer": long + "x", "bytes": "\xff",
	} {
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte(content), 0o600))
	}
	from := func(flag string) (string, error) {
		auth, err := credentialFlags{Actor: "alice", Credential: []string{"a=" + flag}}.readAuth()
		return auth.GetCredentials()["a"], err
	}
	for flag, want := range map[string]string{
		"env:TOKEN": " as it is;=:\n", "file:" + dir + "/unix": "token", "file:" + dir + "/windows": "token",
		"file:" + dir + "/lines": "a\nb\n", "file:" + dir + "/long": long,
	} {
		got, err := from(flag)
		require.NoError(t, err)
		require.Equal(t, want, got, flag)
	}
	for name, says := range map[string]string{"longer": "holds more than 16384 bytes", "bytes": "is not UTF-8"} {
		_, err := from("file:" + dir + "/" + name)
		require.True(t, failure.Is(err, failure.UserInvalidInput), "%v", err)
		require.ErrorContains(t, err, says)
	}
	none, err := credentialFlags{}.readAuth()
	require.NoError(t, err)
	require.Nil(t, none, "a turn without an actor has no credentials")
}
