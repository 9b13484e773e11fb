// Package gobuild builds the programs that tests start.
package gobuild

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime/debug"
	"slices"
	"strings"
	"syscall"
)

// Build builds the programs of packages and returns the folder with the binaries. Package paths are relative to
// dir (empty means the folder of the test). Each binary has the last element of its import path as its name. All
// tests of a module share this folder, .tmp/programs, so a program is linked again only after a change. Concurrent
// callers wait for each other.
//
// The programs have the race detector if the test itself has it. They are stripped, as in a release, because
// linking debug information would double the time.
func Build(dir string, packages ...string) (folder string, err error) {
	root, err := moduleRoot(dir)
	if err != nil {
		return "", err
	}
	folder = filepath.Join(root, ".tmp", "programs")
	args := []string{"build", "-buildvcs=false", "-ldflags", "-s -w"}
	if hasRaceDetector() {
		folder += "-race"
		args = append(args, "-race")
	}
	if err := os.MkdirAll(folder, 0o700); err != nil {
		return "", err
	}
	unlock, err := lockFile(folder + ".lock")
	if err != nil {
		return "", err
	}
	defer unlock()
	cmd := exec.Command("go", append(append(args, "-o", folder+"/"), packages...)...)
	cmd.Dir = dir
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("go build %v: %w\n%s", packages, err, out)
	}
	return folder, nil
}

// moduleRoot returns the folder with the go.mod that applies to dir.
func moduleRoot(dir string) (string, error) {
	cmd := exec.Command("go", "env", "GOMOD")
	cmd.Dir = dir
	out, err := cmd.Output()
	return filepath.Dir(strings.TrimSpace(string(out))), err
}

// lockFile locks a file against other processes until unlock is called.
func lockFile(path string) (unlock func(), err error) {
	file, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, err
	}
	if err := syscall.Flock(int(file.Fd()), syscall.LOCK_EX); err != nil {
		_ = file.Close()
		return nil, err
	}
	return func() { _ = file.Close() }, nil
}

func hasRaceDetector() bool {
	info, ok := debug.ReadBuildInfo()
	return ok && slices.Contains(info.Settings, debug.BuildSetting{Key: "-race", Value: "true"})
}
