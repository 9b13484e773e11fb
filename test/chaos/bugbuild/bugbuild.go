// Package bugbuild builds the binaries of the chaos suite, with or without a planted bug. The sources contain no trace of
// any bug: each is an overlay of source files.
package bugbuild

import (
	"fmt"
	"os/exec"
	"path/filepath"
	"runtime"

	"github.com/troupe-dev/troupe/test/overlay"
)

// The programs of a mesh.
const (
	Memory       = "./services/memory"
	Orchestrator = "./services/orchestrator"
	Worker       = "./test/chaos/worker"
)

// Build builds programs into a folder, with the changes applied to their sources.
func Build(folder string, changes []overlay.Change, programs ...string) error {
	return build(folder, changes, []string{"build", "-o", folder + "/"}, programs...)
}

// BuildTest builds the tests of a package as a program, with the changes applied to the sources.
func BuildTest(folder, program string, changes []overlay.Change, pkg string) error {
	return build(folder, changes, []string{"test", "-vet=off", "-c", "-o", program}, pkg)
}

func build(folder string, changes []overlay.Change, args []string, packages ...string) error {
	if len(changes) > 0 {
		file, err := overlay.Write(RepositoryRoot(), folder, changes)
		if err != nil {
			return err
		}
		args = append(args, "-overlay", file)
	}
	cmd := exec.Command("go", append(args, packages...)...)
	cmd.Dir = RepositoryRoot()
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("%s: %w\n%s", cmd, err, out)
	}
	return nil
}

// RepositoryRoot returns the root folder of the repository.
func RepositoryRoot() string {
	_, file, _, _ := runtime.Caller(0)
	return filepath.Join(filepath.Dir(file), "..", "..", "..")
}
