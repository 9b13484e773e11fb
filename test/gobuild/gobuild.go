// Package gobuild builds the programs that tests start.
package gobuild

import (
	"fmt"
	"os/exec"
	"runtime/debug"
	"slices"
)

// Build builds packages as seen from dir [the directory of the test] into output, with the race detector if the
// test itself has it. So the build cache already holds what both share. The programs are stripped, as those of
// a release are, because linking debug information takes as long as all the rest.
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
