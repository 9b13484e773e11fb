// Package bugbuild builds the binaries of the chaos suite, with or without a planted bug. A bug is a snippet of
// a source file and its replacement. The compiler reads the changed file instead of the real one (go build
// -overlay), so the sources contain no trace of any bug. A snippet must occur exactly once in its file.
// Otherwise the build fails, so the table of bugs stays in step with the code.
package bugbuild

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
)

// Change replaces one snippet of a source file.
type Change struct {
	File        string // relative to the root of the repository
	Find        string // must occur exactly once
	Replacement string
}

// The programs of a mesh.
const (
	Memory       = "./services/memory"
	Orchestrator = "./services/orchestrator"
	Worker       = "./test/chaos/worker"
)

// Build builds programs into a folder, with the changes applied to their sources.
func Build(folder string, changes []Change, programs ...string) error {
	args := []string{"build", "-o", folder + "/"}
	if len(changes) > 0 {
		overlay, err := writeOverlay(folder, changes)
		if err != nil {
			return err
		}
		args = append(args, "-overlay", overlay)
	}
	cmd := exec.Command("go", append(args, programs...)...)
	cmd.Dir = RepositoryRoot()
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("%s: %w\n%s", cmd, err, out)
	}
	return nil
}

// Apply returns the text with the change applied. It fails unless the snippet occurs exactly once.
func (c Change) Apply(text string) (string, error) {
	if n := strings.Count(text, c.Find); n != 1 {
		return "", fmt.Errorf("%s holds the snippet %d times, want once; the code has changed, and the table of planted bugs must follow:\n%s", c.File, n,
			c.Find)
	}
	return strings.Replace(text, c.Find, c.Replacement, 1), nil
}

// ApplyAll returns the new text of each file that the changes name.
func ApplyAll(changes []Change) (map[string]string, error) {
	texts := map[string]string{}
	for _, c := range changes {
		text, ok := texts[c.File]
		if !ok {
			read, err := os.ReadFile(filepath.Join(RepositoryRoot(), c.File))
			if err != nil {
				return nil, err
			}
			text = string(read)
		}
		var err error
		if texts[c.File], err = c.Apply(text); err != nil {
			return nil, err
		}
	}
	return texts, nil
}

// writeOverlay writes the changed files, and a file that makes the compiler read them. It returns the path of that
// file.
func writeOverlay(folder string, changes []Change) (string, error) {
	texts, err := ApplyAll(changes)
	if err != nil {
		return "", err
	}
	replace := map[string]string{}
	for file, text := range texts {
		changed := filepath.Join(folder, strings.ReplaceAll(file, "/", "_"))
		if err := os.WriteFile(changed, []byte(text), 0o600); err != nil {
			return "", err
		}
		replace[filepath.Join(RepositoryRoot(), file)] = changed
	}
	list, err := json.Marshal(map[string]any{"Replace": replace})
	if err != nil {
		return "", err
	}
	name := filepath.Join(folder, "overlay.json")
	return name, os.WriteFile(name, list, 0o600)
}

// RepositoryRoot returns the root folder of the repository.
func RepositoryRoot() string {
	_, file, _, _ := runtime.Caller(0)
	return filepath.Join(filepath.Dir(file), "..", "..", "..")
}
