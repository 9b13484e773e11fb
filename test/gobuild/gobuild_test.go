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

// A built program has the race detector if and only if its test has it.
func TestBuild_UsesTheRaceDetectorOfTheTest(t *testing.T) {
	dir := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(dir, "go.mod"), []byte("module program\n"), 0o600))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "main.go"), []byte("package main\n\nfunc main() {}\n"), 0o600))
	folder, err := gobuild.Build(dir, ".")
	require.NoError(t, err)
	output := filepath.Join(folder, "program")
	first, err := os.Stat(output)
	require.NoError(t, err)

	race := debug.BuildSetting{Key: "-race", Value: "true"}
	own, ok := debug.ReadBuildInfo()
	require.True(t, ok)
	built, err := buildinfo.ReadFile(output)
	require.NoError(t, err)
	require.Equal(t, slices.Contains(own.Settings, race), slices.Contains(built.Settings, race))

	_, err = gobuild.Build(dir, ".")
	require.NoError(t, err)
	second, err := os.Stat(output)
	require.NoError(t, err)
	require.True(t, os.SameFile(first, second), "an unchanged program was linked again")

	_, err = gobuild.Build(dir, "./absent")
	require.ErrorContains(t, err, "go build [./absent]: ")
}
