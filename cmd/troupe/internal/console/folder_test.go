package console

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/alecthomas/kong"
	"github.com/stretchr/testify/require"
)

func TestFolder_MustExistOrBeEmpty(t *testing.T) {
	there := t.TempDir()
	file := filepath.Join(there, "file")
	require.NoError(t, os.WriteFile(file, nil, 0o600))
	for _, c := range []struct {
		args  []string
		value string // value of the environment variable
		want  Folder
		says  string
	}{
		{value: "", want: ""},
		{value: there, want: Folder(there)},
		{args: []string{"--agents", there}, want: Folder(there)},
		{args: []string{"--agents", t.TempDir(), "--agents", there}, want: Folder(there)}, // the last wins
		{args: []string{"--agents="}, value: there, want: ""},
		{value: file, says: file + " is a file, not a folder"},
		{args: []string{"--agents", filepath.Join(there, "absent")}, says: "no such file or directory"},
	} {
		t.Setenv("TROUPE_AGENTS", c.value)
		var got struct {
			Agents Folder `env:"TROUPE_AGENTS"`
		}
		parser, err := kong.New(&got)
		require.NoError(t, err)
		_, err = parser.Parse(c.args)
		if c.says != "" {
			require.ErrorContains(t, err, "--agents")
			require.ErrorContains(t, err, c.says)
			continue
		}
		require.NoError(t, err)
		require.Equal(t, c.want, got.Agents)
	}
}
