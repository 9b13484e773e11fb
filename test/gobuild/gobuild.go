// Package gobuild builds the programs that tests start.
package gobuild

import (
	"fmt"
	"os/exec"
	"runtime/debug"
	"slices"
)

// Build builds packages, seen from dir [the directory of the test], into output. It uses the race detector if
// the test itself does, so both share the build cache. It strips the programs, as a release does, because
// linking debug information would double the time.
func Build(dir, output string, packages ...string) error {
	args := []string{"build", "-ldflags", "-s -w", "-o", output}
	if hasRaceDetector() {
		args = append(args, "-race")
	}
	cmd := exec.Command("go", append(args, packages...)...)
	cmd.Dir = dir
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("go build %v: %w\n%s", packages, err, out)
	}
	return nil
}

func hasRaceDetector() bool {
	info, ok := debug.ReadBuildInfo()
	return ok && slices.Contains(info.Settings, debug.BuildSetting{Key: "-race", Value: "true"})
}
