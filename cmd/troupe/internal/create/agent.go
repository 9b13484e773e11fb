package create

import (
	"bytes"
	"embed"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"text/template"

	"github.com/troupe-dev/troupe/cmd/troupe/internal/console"
	"github.com/troupe-dev/troupe/internal/manifest"
	"github.com/troupe-dev/troupe/pkg/failure"
)

type newAgentCommand struct {
	Name          string   `arg:"" help:"Name of the agent: a-z, 0-9 and hyphens."`
	Go            bool     `help:"Create an agent in Go. Without this flag it is declared in YAML and needs no Go."`
	Dir           string   `help:"Folder to write (empty means one with the name of the agent)." type:"path" placeholder:"DIR"`
	SetupCommands []string `kong:"-"` // go commands that the user runs first

	Replace console.Folder `help:"Checkout of Troupe that --go uses outside of a Go module, instead of a downloaded version." placeholder:"DIR"`
}

// Help implements kong.HelpProvider.
func (newAgentCommand) Help() string {
	return "Example: troupe new agent hours. Existing files are never overwritten. Exit code 0: created. 1: a file exists already. 2: invalid command."
}

// templates holds the files of a new agent, each with the suffix .tmpl. The prefix all: includes .gitignore.
//
//go:embed all:templates
var templates embed.FS

// Run writes the files of the new agent. It writes all files or none.
func (n *newAgentCommand) Run(term console.Terminal) error {
	if err := n.validateFlags(); err != nil {
		return err
	}
	if n.Dir == "" {
		n.Dir = n.Name
	}
	kind, next := "yaml", []string{"troupe test", "troupe dev --agents ."}
	var module []fileToWrite
	if n.Go {
		var err error
		if module, n.SetupCommands, err = n.goModule(); err != nil {
			return err
		}
		kind, next = "go", slices.Concat(n.SetupCommands, []string{"go test ."})
	}
	files, err := n.render(kind)
	if err != nil {
		return err
	}
	files = append(files, module...)
	if err := writeAll(n.Dir, files); err != nil {
		return err
	}
	fmt.Fprintf(term.Out, "%s is there:\n\n", n.Dir)
	for _, f := range files {
		fmt.Fprintf(term.Out, "  %s\n", f.name)
	}
	fmt.Fprintf(term.Out, "\nNext, see README.md there:\n\n  cd %s\n", n.Dir)
	for _, command := range next {
		fmt.Fprintf(term.Out, "  %s\n", command)
	}
	return nil
}

// validateFlags rejects an invalid or reserved name, and --replace without --go.
func (n *newAgentCommand) validateFlags() error {
	invalid := func(format string, args ...any) error {
		return failure.Newf(failure.UserInvalidInput, "troupe new agent", format, args...)
	}
	switch err := manifest.CheckName(n.Name); {
	case err != nil:
		return invalid("an agent cannot be named %v", err)
	case n.Name == "user":
		return invalid("an agent cannot be named user: what the user says has that author")
	case n.Replace != "" && !n.Go:
		return invalid("--replace: only an agent in Go needs it; say --go too")
	}
	return nil
}

// fileToWrite is a file that the command is about to write.
type fileToWrite struct {
	name string // path with slashes
	text []byte
}

// render returns the files of an agent of the given kind.
func (n *newAgentCommand) render(kind string) (all []fileToWrite, _ error) {
	root := "templates/" + kind
	return all, fs.WalkDir(templates, root, func(name string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		made, err := template.ParseFS(templates, name)
		if err != nil {
			return err
		}
		var text bytes.Buffer
		if err := made.Execute(&text, n); err != nil {
			return err
		}
		all = append(all, fileToWrite{strings.TrimSuffix(strings.TrimPrefix(name, root+"/"), ".tmpl"), text.Bytes()})
		return nil
	})
}

// writeAll writes all files below a folder. It writes nothing if one of them already exists.
func writeAll(dir string, files []fileToWrite) error {
	var there []string
	for _, f := range files {
		if _, err := os.Lstat(filepath.Join(dir, filepath.FromSlash(f.name))); !errors.Is(err, fs.ErrNotExist) {
			there = append(there, f.name)
		}
	}
	if len(there) > 0 {
		return fmt.Errorf("nothing is written: %s has %s already; choose another --dir, or move them away", dir, strings.Join(there, ", "))
	}
	for _, f := range files {
		name := filepath.Join(dir, filepath.FromSlash(f.name))
		if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil { //nolint:gosec // as every source folder
			return err
		}
		if err := writeNew(name, f.text); err != nil {
			return err
		}
	}
	return nil
}

// writeNew writes a file and fails if it already exists.
func writeNew(name string, text []byte) error {
	f, err := os.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o644) //nolint:gosec // as every source file
	if err != nil {
		return err
	}
	if _, err := f.Write(text); err != nil {
		_ = f.Close()
		return err
	}
	return f.Close()
}
