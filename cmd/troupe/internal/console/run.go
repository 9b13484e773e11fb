package console

import (
	"context"
	"errors"
	"fmt"

	"github.com/alecthomas/kong"

	"github.com/troupe-dev/troupe/internal/process"
	"github.com/troupe-dev/troupe/pkg/failure"
)

// ExitInputRequired is the exit code of a command whose turn waits for input from the user.
const ExitInputRequired = 3

// ExitCode is an error that makes the program exit with this code and print no message.
type ExitCode int //nolint:errname // a code first, and an error only to get to Run

func (e ExitCode) Error() string { return fmt.Sprintf("exit code %d", int(e)) }

// Run parses args into commands, whose struct tags define the command line. It runs the selected command and
// returns its exit code.
func Run(ctx context.Context, commands any, args []string, term Terminal) int {
	left := -1
	parser, err := kong.New(commands, kong.Name("troupe"),
		kong.Description("LLM agents, run the way Kubernetes runs containers. Start with: troupe dev"),
		kong.Writers(term.Out, term.Err), kong.Exit(func(code int) { left = code }),
		kong.ConfigureHelp(kong.HelpOptions{Compact: true}),
		kong.Vars{"version": process.Version()}, kong.NamedMapper("trace", kong.MapperFunc(decodeTraceID)), kong.NamedMapper("step",
			kong.MapperFunc(decodeStepNumber)),
		kong.BindTo(ctx, (*context.Context)(nil)), kong.Bind(term))
	if err != nil {
		fmt.Fprintln(term.Err, "troupe:", err)
		return process.ExitError
	}
	if len(args) == 0 {
		args = []string{"--help"}
	}
	command, err := parser.Parse(args)
	if left >= 0 {
		return left
	}
	if err != nil {
		of := "troupe"
		if e, ok := errors.AsType[*kong.ParseError](err); ok && e.Context.Selected() != nil {
			of = e.Context.Selected().FullPath()
		}
		fmt.Fprintf(term.Err, "troupe: %v\nSee %s --help.\n", err, of)
		return process.ExitUsage
	}
	err = command.Run()
	if code, ok := errors.AsType[ExitCode](err); ok {
		return int(code)
	}
	if err != nil {
		fmt.Fprintln(term.Err, "troupe:", Escape(failure.PlainMessage(err)))
		if failure.Is(err, failure.UserInvalidInput) {
			return process.ExitUsage
		}
		return process.ExitError
	}
	return process.ExitOK
}
