// Command troupe is the one command of the mesh: it runs a whole mesh in one process, asks
// it questions, and shows what is in it.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/alecthomas/kong"
	"golang.org/x/term"

	"github.com/troupe-dev/troupe/internal/process"
	"github.com/troupe-dev/troupe/pkg/failure"
)

type cli struct {
	New         create           `cmd:"" help:"Begin something of your own: troupe new agent NAME."`
	Test        test             `cmd:"" help:"Run the tests that a folder declares beside its agents."`
	Dev         dev              `cmd:"" help:"Run a whole mesh in this process, for development."`
	Ask         ask              `cmd:"" help:"Ask the mesh something and show what happens."`
	Chat        chat             `cmd:"" help:"Talk with the mesh, turn by turn."`
	Approve     approve          `cmd:"" help:"Let tool calls run that wait for an approval."`
	Deny        deny             `cmd:"" help:"Keep tool calls from running that wait for an approval."`
	Answer      answer           `cmd:"" help:"Give the result of a tool that runs at the client, or the credential that a tool lacks."`
	Get         get              `cmd:"" help:"Show what is in the mesh."`
	Watch       watch            `cmd:"" help:"Show the events of a trace, and go on live."`
	Describe    describe         `cmd:"" help:"Show one thing of the mesh in full."`
	Explain     explain          `cmd:"" help:"Show why a turn took the way that it took."`
	Replay      replay           `cmd:"" help:"Run the agents of a trace again, over what was recorded, and show the first difference."`
	Delete      remove           `cmd:"" help:"Remove something from the mesh for good."`
	Erase       eraser           `cmd:"" help:"Remove a user with all conversations, and print a receipt."`
	Search      search           `cmd:"" help:"Find messages in the conversations of a user."`
	Session     tend             `cmd:"" help:"Pause, resume, compact or clear a conversation."`
	Pause       pause            `cmd:"" help:"Keep steps away from an agent, without stopping it."`
	Resume      resume           `cmd:"" help:"Let a paused agent take steps again."`
	Drain       drain            `cmd:"" help:"Let an instance finish its steps and end."`
	Quarantine  quarantine       `cmd:"" help:"Shut an agent out at once: the kill switch."`
	Release     release          `cmd:"" help:"Let a quarantined agent in again."`
	Audit       auditing         `cmd:"" help:"Check and read audit logs."`
	Cancel      cancel           `cmd:"" help:"End a turn that runs."`
	A2A         bridge           `cmd:"" name:"a2a" help:"Serve the mesh to clients of the A2A protocol."`
	Provision   provision        `cmd:"" help:"Tell a store who may do what in it."`
	Conformance conform          `cmd:"" help:"Test whether a worker, in any language, keeps the rules."`
	Version     kong.VersionFlag `help:"Print the version and exit."`
}

// Exit codes beyond those of every program of the mesh.
const exitInputRequired = 3

// exit is an error that is told already, or needs no telling, with its exit code.
type exit int

func (e exit) Error() string { return fmt.Sprintf("exit code %d", int(e)) }

// terminal is where a command reads from and writes to.
type terminal struct {
	in       io.Reader
	out, err io.Writer
	color    bool // it understands styles
	live     bool // a person types, and reads along
	// unseen reads a line of in that is not shown while it is typed; nil: in is no terminal.
	unseen func(context.Context) (string, error)
}

func main() {
	ctx, stop := process.Signals(context.Background())
	defer stop()
	shown := isTerminal(os.Stdout)
	with := terminal{
		in: os.Stdin, out: os.Stdout, err: os.Stderr,
		color: shown && os.Getenv("NO_COLOR") == "", live: shown && isTerminal(os.Stdin),
	}
	if fd := int(os.Stdin.Fd()); term.IsTerminal(fd) {
		with.unseen = func(ctx context.Context) (string, error) { return unseen(ctx, fd) }
	}
	os.Exit(run(ctx, os.Args[1:], with))
}

// run is main with everything it touches as arguments. It returns the exit code.
func run(ctx context.Context, args []string, term terminal) int {
	left := -1
	parser, err := kong.New(&cli{}, kong.Name("troupe"),
		kong.Description("LLM agents, run the way Kubernetes runs containers. Start with: troupe dev"),
		kong.Writers(term.out, term.err), kong.Exit(func(code int) { left = code }),
		kong.ConfigureHelp(kong.HelpOptions{Compact: true}),
		kong.Vars{"version": process.Version()}, kong.NamedMapper("trace", kong.MapperFunc(traceArg)), kong.NamedMapper("step", kong.MapperFunc(stepArg)),
		kong.BindTo(ctx, (*context.Context)(nil)), kong.Bind(term))
	if err != nil {
		fmt.Fprintln(term.err, "troupe:", err)
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
		fmt.Fprintf(term.err, "troupe: %v\nSee %s --help.\n", err, of)
		return process.ExitUsage
	}
	err = command.Run()
	if code, ok := errors.AsType[exit](err); ok {
		return int(code)
	}
	if err != nil {
		fmt.Fprintln(term.err, "troupe:", visible(failure.Plain(err)))
		if failure.Is(err, failure.UserInvalidInput) {
			return process.ExitUsage
		}
		return process.ExitError
	}
	return process.ExitOK
}

func isTerminal(f *os.File) bool {
	info, err := f.Stat()
	return err == nil && info.Mode()&os.ModeCharDevice != 0
}
