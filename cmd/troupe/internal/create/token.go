package create

import (
	"fmt"
	"time"

	"github.com/troupe-dev/troupe/cmd/troupe/internal/console"
	"github.com/troupe-dev/troupe/internal/identity"
	"github.com/troupe-dev/troupe/internal/identity/token"
	"github.com/troupe-dev/troupe/pkg/failure"
)

type newTokenCommand struct {
	Name   string        `arg:"" help:"Name of its holder, for logs and the audit log."`
	Tenant string        `help:"Tenant whose sessions it gives access to: 1 to 64 of A-Z a-z 0-9 _ . -" default:"default"`
	Admin  bool          `help:"The holder may also operate the mesh: pause, drain and quarantine agents, replay turns, and look at instances and decisions."`
	TTL    time.Duration `help:"Time until the token expires, such as 720h (0 means never)." default:"0" placeholder:"TIME"`
}

// Help implements kong.HelpProvider.
func (newTokenCommand) Help() string {
	return `It prints the token, which is shown this once and stored nowhere, and the entry for the file that the orchestrator has by --client-tokens.

What goes to stderr is such a file, with this one entry.

Example: (umask 077; troupe new token ann --tenant acme > ann.token 2> ann.yaml)`
}

// Run prints a new token on stdout, and its entry for the orchestrator's token file on stderr.
func (n *newTokenCommand) Run(term console.Terminal) error {
	entry := token.Entry{Name: n.Name, Tenant: n.Tenant, Role: identity.Client}
	if n.Admin {
		entry.Role = identity.Admin
	}
	if n.TTL < 0 {
		return failure.Newf(failure.UserInvalidInput, "troupe new token", "--ttl: %s is negative; use a positive time, or 0 for a token that never expires",
			n.TTL)
	}
	if n.TTL > 0 {
		entry.Expires = time.Now().UTC().Add(n.TTL).Truncate(time.Second)
	}
	value, entry := token.New(entry)
	if err := entry.Check(); err != nil {
		return failure.New(failure.UserInvalidInput, "troupe new token", err.Error())
	}
	text, err := token.FormatFile(entry)
	if err != nil {
		return err
	}
	// The output on stderr must be a valid file for --client-tokens, so everything except the entry is a comment.
	fmt.Fprintf(term.Err, "# The token of %s. Keep it; it is shown this once:\n\n", console.EscapeLine(entry.Name))
	fmt.Fprintln(term.Out, value.Reveal())
	fmt.Fprintf(term.Err, "\n# The entry for --client-tokens, without which it opens nothing:\n\n")
	fmt.Fprint(term.Err, string(text))
	return nil
}
