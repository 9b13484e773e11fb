package create

import (
	"context"
	"fmt"
	"io"
	"os"

	"github.com/troupe-dev/troupe/cmd/troupe/internal/console"
	"github.com/troupe-dev/troupe/internal/conformance"
	"github.com/troupe-dev/troupe/internal/process"
	"github.com/troupe-dev/troupe/pkg/failure"
)

type conformanceCommand struct {
	Address string   `arg:"" optional:"" help:"Address of a worker that runs with --conformance, host:port."`
	Only    []string `help:"Only some checks: ids, areas such as pause, or patterns such as 'verbs/pause-*'." placeholder:"PATTERN"`
	Repeat  int      `help:"How often a failed check is run again, alone, before it counts as failed: 1 or 2 for busy machines." default:"0" placeholder:"N"`
	JSON    bool     `name:"json" help:"Print the report in JSON." xor:"form"`
	JUnit   string   `name:"junit" help:"Write the report to a file in JUnit's XML too." placeholder:"FILE" type:"path"`
	List    bool     `help:"List the checks and run none." xor:"form"`
}

// Help implements kong.HelpProvider.
func (conformanceCommand) Help() string {
	return "Exit code 0: the worker follows every rule. 1: it does not, or cannot be reached. 2: invalid command."
}

// Run checks the worker and prints the report, or only lists the checks. It returns a non-zero exit code if a
// check failed.
func (c *conformanceCommand) Run(ctx context.Context, term console.Terminal) error {
	checks, err := conformance.SelectChecks(c.Only...)
	if err != nil {
		return err
	}
	if c.List {
		for _, check := range checks {
			fmt.Fprintf(term.Out, "%s  (%s)\n    %s\n", check.ID, check.Requirement, check.Title)
		}
		return nil
	}
	if c.Address == "" {
		return failure.New(failure.UserInvalidInput, "troupe conformance", "expected the address of a worker that runs with --conformance, host:port")
	}
	cfg := conformance.Config{Address: c.Address, Only: c.Only, Repeat: c.Repeat}
	if term.Color && !c.JSON {
		done := 0
		cfg.Progress = func(conformance.Result) {
			done++
			fmt.Fprintf(term.Err, "\r%d of %d checks", done, len(checks))
		}
	}
	report, err := conformance.Run(ctx, cfg)
	if cfg.Progress != nil {
		fmt.Fprint(term.Err, "\r\x1b[K")
	}
	if err != nil {
		return err
	}
	if err := c.writeReports(term, report); err != nil {
		return err
	}
	if report.FailedCount() > 0 {
		return console.ExitCode(process.ExitError)
	}
	return nil
}

// writeReports prints the report and writes it in each other requested format.
func (c *conformanceCommand) writeReports(term console.Terminal, report conformance.Report) error {
	if c.JUnit != "" {
		if err := writeFile(c.JUnit, report.WriteJUnit); err != nil {
			return fmt.Errorf("--junit: %w", err)
		}
	}
	if c.JSON {
		return report.WriteJSON(term.Out)
	}
	return report.WriteTable(term.Out, term.Color)
}

func writeFile(name string, write func(io.Writer) error) error {
	f, err := os.Create(name) //nolint:gosec // the caller names the file
	if err != nil {
		return err
	}
	if err := write(f); err != nil {
		_ = f.Close()
		return err
	}
	return f.Close()
}
