package gobuild_test

import (
	"debug/buildinfo"
	"os"
	"path/filepath"
	"runtime/debug"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/troupe-dev/troupe/test/gobuild"
)

// A program has the race detector exactly if its test has it.
func TestBuild_FollowsTheRaceDetectorOfTheTest(t *testing.T) {
	dir := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(dir, "go.mod"), []byte("module program\n"), 0o600))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "main.go"), []byte("package main\n\nfunc main() {}\n"), 0o600))
	output := filepath.Join(dir, "program")
	require.NoError(t, gobuild.Build(dir, output, "."))

	race := debug.BuildSetting{Key: "-race", Value: "true"}
	own, ok := debug.ReadBuildInfo()
	require.True(t, ok)
	built, err := buildinfo.ReadFile(output)
	require.NoError(t, err)
	require.Equal(t, slices.Contains(own.Settings, race), slices.Contains(built.Settings, race))

	require.ErrorContains(t, gobuild.Build(dir, output, "./absent"), "go build [./absent]: ")
}
