// Command troupe is the command line of the mesh. It runs the services, sends requests, shows the contents of the
// mesh, and operates it.
package main

import (
	"context"
	"os"

	"github.com/alecthomas/kong"

	"github.com/troupe-dev/troupe/cmd/troupe/internal/console"
	"github.com/troupe-dev/troupe/cmd/troupe/internal/create"
	"github.com/troupe-dev/troupe/cmd/troupe/internal/inspect"
	"github.com/troupe-dev/troupe/cmd/troupe/internal/inspect/trace"
	"github.com/troupe-dev/troupe/cmd/troupe/internal/interact"
	"github.com/troupe-dev/troupe/cmd/troupe/internal/operate"
	"github.com/troupe-dev/troupe/cmd/troupe/internal/serve"
	"github.com/troupe-dev/troupe/internal/process"
)

// cli holds all commands, in groups for the help text.
type cli struct {
	Interact interact.Commands `embed:"" group:"Talk to the mesh"`
	Inspect  inspect.Commands  `embed:"" group:"Look at the mesh"`
	Trace    trace.Commands    `embed:"" group:"Look at one turn"`
	Operate  operate.Commands  `embed:"" group:"Operate the mesh"`
	Create   create.Commands   `embed:"" group:"Make and test agents"`
	Serve    serve.Commands    `embed:"" group:"Run programs of the mesh"`

	Version kong.VersionFlag `help:"Print the version and exit."`
}

func main() {
	ctx, stop := process.Signals(context.Background())
	defer stop()
	os.Exit(run(ctx, os.Args[1:], console.StandardTerminal()))
}

func run(ctx context.Context, args []string, term console.Terminal) int {
	return console.Run(ctx, &cli{}, args, term)
}
