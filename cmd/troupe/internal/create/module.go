package create

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"

	"github.com/troupe-dev/troupe/internal/process"
	"github.com/troupe-dev/troupe/pkg/failure"
)

// modulePath is the import path of the Troupe module.
const modulePath = "github.com/troupe-dev/troupe"

// goModule returns the module files and the go commands that a new agent in Go needs before it builds. Inside a Go
// module the agent is a package, and at most a command adds Troupe to the module. Elsewhere the agent becomes its
// own module.
func (n *newAgentCommand) goModule() (files []fileToWrite, steps []string, _ error) {
	around, err := enclosingModule(n.Dir)
	switch {
	case err != nil:
		return nil, nil, err
	case around != "" && n.Replace != "":
		return nil, nil, failure.Newf(failure.UserInvalidInput, "troupe new agent",
			"--replace: %s is within the Go module of %s; put the replacement there", n.Dir, around)
	case around != "":
		text, err := os.ReadFile(around) //nolint:gosec // it was found there
		if err == nil && !strings.Contains(string(text), modulePath) {
			steps = []string{"go get " + modulePath + "@latest"}
		}
		return nil, steps, err
	}
	text := fmt.Sprintf("module example.com/%s\n\ngo %s\n\n", n.Name, goVersion)
	if n.Replace == "" {
		v, err := releasedVersion(process.Version())
		if err != nil {
			return nil, nil, err
		}
		return []fileToWrite{{"go.mod", fmt.Appendf(nil, "%srequire %s %s\n", text, modulePath, v)}}, []string{"go mod tidy"}, nil
	}
	sums, err := os.ReadFile(filepath.Join(string(n.Replace), "go.sum"))
	if err != nil {
		return nil, nil, checkoutError(string(n.Replace), err)
	}
	uses, err := os.ReadFile(filepath.Join(string(n.Replace), "go.mod"))
	if err != nil || !strings.HasPrefix(string(uses), "module "+modulePath+"\n") {
		return nil, nil, checkoutError(string(n.Replace), err)
	}
	text += fmt.Sprintf("require %s v0.0.0\n\nreplace %s => %s\n\n", modulePath, modulePath, n.Replace) +
		"// What Troupe uses, so that nothing has to be downloaded; go mod tidy makes it shorter.\n" +
		"require (\n" + indirectRequirements(string(uses)) + ")\n"
	return []fileToWrite{{"go.mod", []byte(text)}, {"go.sum", sums}}, nil, nil
}

func checkoutError(dir string, err error) error {
	return failure.Newf(failure.UserInvalidInput, "troupe new agent", "--replace: %s is no checkout of Troupe", dir).Because(err)
}

// indirectRequirements returns the requirements of Troupe's go.mod, marked as indirect, for a module that requires
// Troupe.
func indirectRequirements(text string) string {
	var all strings.Builder
	within := false
	for line := range strings.Lines(text) {
		switch line = strings.TrimRight(line, "\n"); {
		case line == "require (":
			within = true
		case line == ")":
			within = false
		case within:
			all.WriteString(strings.TrimSuffix(line, " // indirect") + " // indirect\n")
		}
	}
	return all.String()
}

// goVersion is the oldest version of Go that builds Troupe.
const goVersion = "1.26.0"

// enclosingModule returns the go.mod of the Go module that contains the folder (empty if there is none).
func enclosingModule(dir string) (string, error) {
	at, err := filepath.Abs(dir)
	if err != nil {
		return "", err
	}
	for {
		name := filepath.Join(at, "go.mod")
		switch _, err := os.Stat(name); {
		case err == nil:
			return name, nil
		case !errors.Is(err, fs.ErrNotExist):
			return "", err
		case at == filepath.Dir(at):
			return "", nil
		}
		at = filepath.Dir(at)
	}
}

var releasePattern = regexp.MustCompile(`^v\d+\.\d+\.\d+(-[0-9A-Za-z.-]+)?$`)

// releasedVersion returns v. It fails if v is not a release that go can download.
func releasedVersion(v string) (string, error) {
	if !releasePattern.MatchString(v) {
		return "", failure.Newf(failure.UserInvalidInput, "troupe new agent",
			"--go: this troupe was built from a checkout (version %q), which go cannot download; name its folder with --replace DIR, "+
				"or choose a --dir within a Go module", v)
	}
	return v, nil
}
