package create

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"strings"
	"time"

	"go.uber.org/zap"

	"github.com/troupe-dev/troupe/cmd/troupe/internal/console"
	"github.com/troupe-dev/troupe/internal/process"
	"github.com/troupe-dev/troupe/services/standalone/testrun"
)

type testCommand struct {
	Dir  string `arg:"" optional:"" help:"Folder with YAML files that declare agents and their tests (empty means this one)." type:"existingdir"`
	Docs string `help:"Folder that search_documents searches, in place of the declared one." env:"TROUPE_DOCS" placeholder:"DIR"`
}

// Help implements kong.HelpProvider.
func (testCommand) Help() string {
	return "Example: troupe test hours. A test is a document of kind Test beside the agents: what the user says, what the model " +
		"replies in place of a real one, and the expected result. No mesh is needed. Exit code 0: all passed. 1: one did not."
}

// Run runs the tests that the folder declares and prints the result of each.
func (c *testCommand) Run(ctx context.Context, term console.Terminal) error {
	passed, failed := 0, 0
	err := testrun.Run(ctx, testrun.Config{Folder: os.DirFS(cmp.Or(c.Dir, ".")), Docs: c.Docs, Log: zap.NewNop()}, func(r testrun.Result) {
		took := r.Took.Round(time.Millisecond)
		if len(r.Errors) == 0 {
			passed++
			fmt.Fprintf(term.Out, "%s    %s  %s\n", "ok", r.Name, took)
			return
		}
		failed++
		fmt.Fprintf(term.Out, "%s  %s  %s\n", term.ApplyStyle(console.Red, "FAIL"), r.Name, took)
		for _, wrong := range r.Errors {
			fmt.Fprintf(term.Out, "      %s\n", strings.ReplaceAll(console.Escape(wrong.Error()), "\n", "\n      "))
		}
	})
	if err != nil {
		return err
	}
	if failed > 0 {
		fmt.Fprintf(term.Out, "\n%d of %d tests failed.\n", failed, passed+failed)
		return console.ExitCode(process.ExitError)
	}
	fmt.Fprintf(term.Out, "\nAll %d passed.\n", passed)
	return nil
}
