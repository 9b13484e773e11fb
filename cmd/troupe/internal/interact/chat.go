package interact

import (
	"context"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/troupe-dev/troupe/cmd/troupe/internal/console"
	"github.com/troupe-dev/troupe/cmd/troupe/internal/remote"
)

type chatCommand struct {
	remote.Server   `embed:""`
	credentialFlags `embed:""`
	Target          string        `help:"Workflow or agent to chat with (empty means the default workflow)." aliases:"agent" placeholder:"NAME"`
	Session         string        `help:"Session to continue (empty means a new one)." placeholder:"ID"`
	User            string        `help:"User that the session belongs to (empty means unchanged)." placeholder:"ID"`
	Timeout         time.Duration `help:"Time that a turn may take (0 means the default of the workflow, or of the orchestrator)." default:"0"`
}

// Help implements kong.HelpProvider.
func (chatCommand) Help() string {
	return `Ctrl-C stops waiting for a turn, which continues; a second one leaves, as Ctrl-D does. /help lists the commands.
Without a terminal it reads one message or answer per line from standard input.

Example: troupe chat --agent research

With a history of what you typed: rlwrap troupe chat`
}

// Run chats until the input ends or the user leaves.
func (c *chatCommand) Run(ctx context.Context, term console.Terminal) error {
	auth, err := c.readAuth()
	if err != nil {
		return err
	}
	mesh, conn, err := c.Dial()
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close() }()
	// An interrupt normally ends ctx. In a chat the first interrupt only stops waiting for the turn.
	ctx, stop := context.WithCancel(context.WithoutCancel(ctx))
	defer stop()
	interrupts := make(chan os.Signal, 1)
	signal.Notify(interrupts, os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	defer signal.Stop(interrupts)
	t := &chatSession{chatCommand: *c, term: term, mesh: mesh, auth: auth, interrupts: interrupts, hold: newInputHold()}
	t.lines = readLines(ctx, term.In, t.hold)
	return t.run(ctx)
}
