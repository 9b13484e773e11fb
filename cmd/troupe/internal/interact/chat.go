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

type chat struct {
	remote.Server   `embed:""`
	credentialFlags `embed:""`
	Target          string        `help:"Workflow or agent to talk with. Empty: the default workflow. --agent says the same." aliases:"agent" placeholder:"NAME"`
	Session         string        `help:"Conversation to go on with. Empty: a new one." placeholder:"ID"`
	User            string        `help:"Whose conversation it is. Empty: as it began." placeholder:"ID"`
	Timeout         time.Duration `help:"Time that a turn may take. 0: the default of the workflow, or of the orchestrator." default:"0"`
}

// Help is the long help of the command.
func (chat) Help() string {
	return `Ctrl-C stops waiting for a turn, which goes on; a second one leaves, as Ctrl-D does. /help lists what else there is. Without a terminal it reads one message or answer a line from standard input.

Example: troupe chat --agent research

With a history of what you typed: rlwrap troupe chat`
}

// Run talks until its input ends.
func (c *chat) Run(ctx context.Context, term console.Terminal) error {
	auth, err := c.auth()
	if err != nil {
		return err
	}
	mesh, conn, err := c.Dial()
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close() }()
	// A signal ends ctx for good; here the first one ends no more than a wait.
	ctx, stop := context.WithCancel(context.WithoutCancel(ctx))
	defer stop()
	interrupts := make(chan os.Signal, 1)
	signal.Notify(interrupts, os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	defer signal.Stop(interrupts)
	t := &chatSession{chat: *c, term: term, mesh: mesh, auth: auth, interrupts: interrupts, hold: newInputHold()}
	t.lines = readLines(ctx, term.In, t.hold)
	return t.run(ctx)
}
