package redis_test

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// allowedCommands returns the commands that users.acl allows to a user.
func allowedCommands(t *testing.T, user string) map[string]bool {
	t.Helper()
	file, err := os.ReadFile("users.acl")
	require.NoError(t, err)
	commands := map[string]bool{}
	for line := range strings.Lines(string(file)) {
		if fields := strings.Fields(line); len(fields) > 1 && fields[1] == user {
			for _, f := range fields[2:] {
				if command, ok := strings.CutPrefix(f, "+"); ok {
					commands[command] = true
				}
			}
		}
	}
	require.NotEmpty(t, commands)
	return commands
}

// Every service's Redis user may run all commands in the Lua scripts of that service.
func TestUsers_MayRunTheirScripts(t *testing.T) {
	call := regexp.MustCompile(`redis\.p?call\('([A-Z]+)'`)
	for user, scripts := range map[string]string{
		"memory":       "../../services/memory/internal/redisstore",
		"orchestrator": "../../services/orchestrator/internal/trace/redistrace",
	} {
		may, found := allowedCommands(t, user), 0
		require.NoError(t, filepath.WalkDir(scripts, func(path string, _ fs.DirEntry, err error) error {
			if err != nil || filepath.Ext(path) != ".lua" {
				return err
			}
			source, err := os.ReadFile(path)
			for _, m := range call.FindAllStringSubmatch(string(source), -1) {
				found++
				require.True(t, may[strings.ToLower(m[1])], "user %s may not use %s of %s", user, m[1], path)
			}
			return err
		}))
		require.Positive(t, found)
	}
}

func TestUsers_HaveNoPassword(t *testing.T) {
	file, err := os.ReadFile("users.acl")
	require.NoError(t, err)
	for line := range strings.Lines(string(file)) {
		for f := range strings.FieldsSeq(line) {
			require.NotContains(t, "><#", f[:1], "a file in public is no place for a password")
			require.NotEqual(t, "nopass", f)
		}
	}
}
