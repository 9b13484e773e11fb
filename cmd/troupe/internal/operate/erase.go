package operate

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"strings"
	"text/tabwriter"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/troupe-dev/troupe/cmd/troupe/internal/console"
	"github.com/troupe-dev/troupe/cmd/troupe/internal/remote"
	"github.com/troupe-dev/troupe/pkg/client"
	troupev1 "github.com/troupe-dev/troupe/pkg/gen/troupe/v1"
)

// eraseTimeout bounds the erasure of one session or one user.
const eraseTimeout = 10 * time.Minute

type deleteCommands struct {
	Session deleteSessionCommand `cmd:"" help:"Conversations, with all that belongs to them."`
}

type deleteSessionCommand struct {
	remote.Query `embed:""`
	Receipt      bool     `help:"Also print what was removed, and what remains and why."`
	IDs          []string `arg:"" name:"id" help:"Ids of the sessions."`
}

// Help implements kong.HelpProvider.
func (deleteSessionCommand) Help() string {
	return "Deletes messages, state, artifacts, traces and their events for good, and cancels an open turn. For a week no " +
		"session with this id can be created, and the same command prints the same receipt. Exit code 0: all are deleted. 1: one is not."
}

// Run deletes the sessions one after the other. It continues after a failure and returns all errors at the end.
func (d *deleteSessionCommand) Run(ctx context.Context, term console.Terminal) error {
	var failed []error
	for _, id := range d.IDs {
		var resp *troupev1.DeleteSessionResponse
		err := d.ShowWithTimeout(ctx, eraseTimeout, term, func(ctx context.Context, c *client.Client) (_ proto.Message, err error) {
			resp, err = c.Sessions.DeleteSession(ctx, &troupev1.DeleteSessionRequest{SessionId: id})
			return resp, err
		}, func(w *tabwriter.Writer) {
			fmt.Fprintf(w, "%s\tdeleted\n", id)
			if d.Receipt {
				printReceipt(w, resp.GetReceipt())
			}
		})
		failed = append(failed, err)
	}
	return errors.Join(failed...)
}

type eraseCommands struct {
	User eraseUserCommand `cmd:"" help:"A user: all conversations, and what they share."`
}

type eraseUserCommand struct {
	remote.Query `embed:""`
	Yes          bool   `help:"Do not ask whether that is meant."`
	ID           string `arg:"" help:"Id of the user."`
}

// Help implements kong.HelpProvider.
func (eraseUserCommand) Help() string {
	return "Deletes all sessions of the user as troupe delete session does, and then state and artifacts under user:. Meanwhile " +
		"the user cannot start a session. If the command is interrupted, the mesh completes the erasure, and the same command " +
		"waits for it. Exit code 0: nothing is left but what the receipt says. 1: unknown."
}

// Run asks for a confirmation, erases the user, and prints the receipt.
func (e *eraseUserCommand) Run(ctx context.Context, term console.Terminal) error {
	if err := e.confirm(term); err != nil {
		return err
	}
	var resp *troupev1.EraseUserResponse
	return e.ShowWithTimeout(ctx, eraseTimeout, term, func(ctx context.Context, c *client.Client) (_ proto.Message, err error) {
		resp, err = c.Sessions.EraseUser(ctx, &troupev1.EraseUserRequest{UserId: e.ID})
		return resp, err
	}, func(w *tabwriter.Writer) {
		fmt.Fprintf(w, "%s\terased\n", e.ID)
		printReceipt(w, resp.GetReceipt())
	})
}

// confirm asks the operator to type the id of the user, because an erasure cannot be undone.
func (e *eraseUserCommand) confirm(term console.Terminal) error {
	if e.Yes {
		return nil
	}
	fmt.Fprintf(term.Err, "This erases all sessions of user %s, and everything that was made of them, for good. Type the id of the "+
		"user to continue: ", console.EscapeLine(e.ID))
	line, _ := bufio.NewReader(term.In).ReadString('\n') // at the end of the input, line is what was typed
	if strings.TrimSpace(line) != e.ID {
		return errors.New("nothing was erased: the id was not typed; add --yes where no person can type")
	}
	return nil
}

// printReceipt prints what the erasure removed, what remains, and why.
func printReceipt(w *tabwriter.Writer, r *troupev1.ErasureReceipt) {
	console.PrintRow(w, "by", console.OrDash(r.GetBy()))
	console.PrintRow(w, "ended", r.GetEnded().AsTime().Format(time.RFC3339))
	var removed, remains []string
	for _, items := range r.GetRemoved() {
		removed = append(removed, formatItemCount(items.GetCount(), items.GetKind()))
	}
	for _, left := range r.GetRemains() {
		line := left.GetWhat() + ": " + left.GetWhy()
		if left.GetUntil() != nil {
			line += "; until " + left.GetUntil().AsTime().Format(time.RFC3339)
		}
		remains = append(remains, line)
	}
	if len(removed) == 0 {
		removed = []string{"nothing: no data was found"}
	}
	console.PrintItems(w, "removed", removed)
	console.PrintItems(w, "remains", remains)
}

// formatItemCount formats how many items of a kind were removed, such as "1 trace" or "2 state_keys_of_user".
func formatItemCount(n int64, kind string) string {
	if n == 1 {
		kind = strings.TrimSuffix(strings.Replace(kind, "s_of_", "_of_", 1), "s")
	}
	return fmt.Sprintf("%d %s", n, kind)
}
