package interact

import (
	"cmp"
	"context"
	"fmt"
	"iter"
	"os"
	"strings"
	"sync"

	"github.com/google/uuid"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/troupe-dev/troupe/cmd/troupe/internal/console"
	"github.com/troupe-dev/troupe/cmd/troupe/internal/remote"
	"github.com/troupe-dev/troupe/cmd/troupe/internal/render"
	"github.com/troupe-dev/troupe/internal/grpcfailure"
	"github.com/troupe-dev/troupe/internal/wire"
	"github.com/troupe-dev/troupe/internal/wire/memorywire"
	"github.com/troupe-dev/troupe/pkg/client"
	"github.com/troupe-dev/troupe/pkg/conversation"
	"github.com/troupe-dev/troupe/pkg/failure"
	troupev1 "github.com/troupe-dev/troupe/pkg/gen/troupe/v1"
)

// run prints a greeting and the history, and then handles lines until the user leaves.
func (c *chatSession) run(ctx context.Context) error {
	if err := c.openSession(ctx); err != nil {
		return c.ExplainError(err)
	}
	for c.answerPending(ctx) {
		text, ok := c.prompt("> ")
		if !ok || !c.handleLine(ctx, text) {
			break
		}
	}
	c.printResumeHint()
	return nil
}

// openSession reads the session from the mesh and prints the greeting and the latest messages. It fails if the
// mesh cannot be reached.
func (c *chatSession) openSession(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, remote.Timeout)
	defer cancel()
	if c.Session == "" {
		if _, err := c.mesh.ListAgents(ctx, &troupev1.ListAgentsRequest{}); err != nil { // reports an unreachable mesh before the first message
			return err
		}
		c.Session = uuid.NewString()
		c.printGreeting("new")
		return nil
	}
	resp, err := c.mesh.Sessions.GetSession(ctx, &troupev1.GetSessionRequest{SessionId: c.Session})
	if failure.Is(grpcfailure.FromStatus("troupe", err), failure.NotFound) {
		c.printGreeting("new")
		return nil
	} else if err != nil {
		return err
	}
	s := resp.GetSession()
	if c.User != "" && c.User != s.GetUserId() && s.GetTurns() > 0 {
		return failure.Newf(failure.NotFound, "troupe", "there is no session %s of user %s; leave --session out to begin one", c.Session, c.User)
	}
	c.User, c.exists = cmp.Or(s.GetUserId(), c.User), true
	c.printGreeting(fmt.Sprintf("%s, %s", memorywire.SessionFromProto(s).State, console.FormatCount(int64(s.GetTurns()), "turn")))
	if err := c.printHistory(ctx, s.GetLastSequence()); err != nil {
		return err
	}
	c.pending = s.GetPending()
	if s.GetOpenTurnId() != "" && s.GetLastTraceId() != "" {
		c.unfinishedTurn = func(ctx context.Context) stream { return c.mesh.Watch(ctx, s.GetLastTraceId(), c.lastSequence) }
		c.printNote("A turn is running here. Enter shows it; what you type waits for its end.")
	}
	return nil
}

func (c *chatSession) printGreeting(what string) {
	with := "the default workflow"
	if c.Target != "" {
		with = console.EscapeLine(c.Target)
	}
	c.printNote("Session %s (%s). You talk with %s; /help lists what you can do.", c.Session, what, with)
}

// historyMessages is the number of latest messages that the chat prints. historyCharacters is the number of
// characters that it prints of each.
const (
	historyMessages   = 10
	historyCharacters = 300
)

func (c *chatSession) printHistory(ctx context.Context, last int64) error {
	resp, err := c.mesh.Sessions.ListMessages(ctx, &troupev1.ListMessagesRequest{
		SessionId:     c.Session,
		AfterSequence: max(0, last-historyMessages), PageSize: historyMessages,
	})
	if err != nil {
		return err
	}
	for _, m := range wire.MessagesFromProto(resp.GetMessages()) {
		switch m.Role {
		case conversation.RoleTool:
		case conversation.RoleUser:
			fmt.Fprintf(c.term.Out, "> %s\n", console.EscapeBeginning(m.Text, historyCharacters))
		default:
			fmt.Fprintf(c.term.Out, "%s %s\n", c.term.ApplyStyle(console.Dim, console.EscapeLine(render.Speaker(m))+":"), console.EscapeBeginning(m.Text,
				historyCharacters))
		}
	}
	return nil
}

const chatHelp = `  /session  the id of this session, and how to continue it
  /pending  ask again about the calls that wait
  /new      begin a new session
  /quit     leave; so do Ctrl-D, and Ctrl-C twice
Ctrl-C while a turn runs stops waiting for it; it continues, and Enter shows the rest.
A space before a slash sends it as a message.`

// handleLine runs the chat command in a line or sends the line as a message. It reports whether the chat continues.
func (c *chatSession) handleLine(ctx context.Context, text string) bool {
	switch command := strings.TrimSpace(text); {
	case command == "" && c.unfinishedTurn != nil:
		c.followTurn(ctx)
	case command == "":
	case !strings.HasPrefix(text, "/"):
		c.sendMessage(ctx, text)
	case command == "/quit":
		return false
	case command == "/help":
		fmt.Fprintln(c.term.Out, chatHelp)
	case command == "/session":
		c.printNote("Session %s. Continue it with: %s", c.Session, c.resumeCommand())
	case command == "/pending":
		c.refreshPending(ctx)
	case command == "/new":
		if c.exists {
			c.printNote("Previous session: %s", c.resumeCommand())
		}
		*c = chatSession{chatCommand: c.chatCommand, term: c.term, mesh: c.mesh, auth: c.auth, lines: c.lines, interrupts: c.interrupts, hold: c.hold}
		c.Session = uuid.NewString()
		c.printGreeting("new")
	default:
		c.printNote("There is no %s; /help lists what there is.", console.EscapeLine(command))
	}
	return true
}

// refreshPending reads the pending calls of the session from the mesh.
func (c *chatSession) refreshPending(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, remote.Timeout)
	defer cancel()
	resp, err := c.mesh.Sessions.GetSession(ctx, &troupev1.GetSessionRequest{SessionId: c.Session})
	if err != nil {
		c.printError(err)
		return
	}
	c.pending, c.postponed = resp.GetSession().GetPending(), nil
	if len(c.pending) == 0 {
		c.printNote("Nothing waits.")
	}
}

// sendMessage sends a message. If another turn of the session runs, it retries after that turn has ended.
func (c *chatSession) sendMessage(ctx context.Context, text string) {
	if len(c.pending) > 0 {
		c.printNote("A message leaves what waits undone.")
	}
	c.send(ctx, &troupev1.OrchestrateRequest{
		Input:  &troupev1.OrchestrateRequest_Text{Text: strings.ToValidUTF8(text, "\uFFFD")},
		Target: c.Target, OnBusy: troupev1.OnBusy_ON_BUSY_ENQUEUE,
	})
}

func (c *chatSession) send(ctx context.Context, req *troupev1.OrchestrateRequest) {
	req.SessionId, req.RequestId, req.UserId, req.Auth = c.Session, uuid.NewString(), c.User, c.auth
	if c.Timeout != 0 {
		req.Timeout = durationpb.New(c.Timeout)
	}
	c.lastSequence, c.pending, c.postponed = 0, nil, nil
	c.unfinishedTurn = func(ctx context.Context) stream { return remote.NewRetryingClient(c.mesh, c.term).Turn(ctx, req) }
	c.followTurn(ctx)
}

// resumeCommand returns the shell command with which the user resumes the session later.
func (c *chatSession) resumeCommand() string {
	set := func(flag, value string) string {
		if value == "" {
			return ""
		}
		return " --" + flag + " " + console.QuoteForShell(value)
	}
	return "troupe chat" + c.Flags() + set("session", c.Session) + set("target", c.Target) + set("user", c.User) + set("actor",
		c.Actor) + c.repeatHint()
}

// printResumeHint prints how to resume the session, unless the session has no turn.
func (c *chatSession) printResumeHint() {
	if c.exists {
		c.printNote("Continue with: %s", c.resumeCommand())
	}
}

func (c *chatSession) printError(err error) {
	fmt.Fprintf(c.term.Out, "%s %s\n", c.term.ApplyStyle(console.Red, "Failed:"), console.EscapeAndIndent(failure.PlainMessage(c.ExplainError(err)), 2))
}

func (c *chatSession) printNote(format string, args ...any) {
	fmt.Fprintln(c.term.Out, c.term.ApplyStyle(console.Dim, fmt.Sprintf(format, args...)))
}

// printTurn prints the rest of a turn and stores the calls that are pending after it.
func (c *chatSession) printTurn(all stream) error {
	r := render.NewChatView(c.term)
	for e, err := range all {
		if err != nil {
			r.EndText()
			return err
		}
		c.exists = true
		if s := e.GetSequence(); s > 0 {
			if s <= c.lastSequence {
				continue // the watch started again
			}
			c.lastSequence = s
		}
		r.PrintEvent(e)
		if end := e.GetTurnResult(); end != nil {
			c.pending = end.GetPending()
		}
	}
	return nil
}

// stream is an iterator over the events of a turn.
type stream = iter.Seq2[*troupev1.Event, error]

// chatSession is a running chat. It is not safe for concurrent use.
type chatSession struct {
	chatCommand
	term            console.Terminal
	mesh            *client.Client
	auth            *troupev1.Auth
	lines           <-chan inputLine
	hold            *inputHold
	interrupts      <-chan os.Signal
	interruptedOnce bool // the next Ctrl-C leaves the chat
	terminated      bool // the process received SIGTERM

	exists         bool                         // the session exists in the mesh
	unfinishedTurn func(context.Context) stream // follows a turn whose end was not shown (nil if there is none)
	lastSequence   uint64                       // sequence of the last event of that turn that was shown
	pending        []*troupev1.PendingCall
	postponed      []string // ids that the postponed calls had when the user postponed them
}

// followTurn prints the rest of the unfinished turn. It prints errors instead of returning them, because an error
// does not end the chat.
func (c *chatSession) followTurn(ctx context.Context) {
	waiting, stop := context.WithCancel(ctx)
	var watching sync.WaitGroup
	var by os.Signal // signal that ended the wait (nil if none did)
	watching.Go(func() {
		select {
		case by = <-c.interrupts:
			stop()
		case <-waiting.Done():
		}
	})
	err := c.printTurn(c.unfinishedTurn(waiting))
	stop()
	watching.Wait()
	switch {
	case err == nil:
		c.unfinishedTurn, c.lastSequence = nil, 0
	case by != nil && c.lastSequence > 0:
		c.printNote("The turn continues without you. Press Enter to see the rest; " +
			"a message that you type waits until the turn ends. Press Ctrl-C again to leave.")
	case by != nil:
		c.printNote("No event of the turn has arrived, so it may not have begun. Press Enter to send it again. Press Ctrl-C again to leave.")
	default:
		c.printError(err)
		if c.lastSequence == 0 && !mayHaveStarted(err) {
			c.unfinishedTurn = nil // the mesh rejected the turn
		} else {
			c.printNote("The turn may go on all the same; Enter looks for it.")
		}
	}
	c.interruptedOnce, c.terminated = by != nil, by != nil && by != os.Interrupt
}
