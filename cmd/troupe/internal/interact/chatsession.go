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
func (t *chatSession) run(ctx context.Context) error {
	if err := t.openSession(ctx); err != nil {
		return t.ExplainError(err)
	}
	for t.answerPending(ctx) {
		text, ok := t.prompt("> ")
		if !ok || !t.handleLine(ctx, text) {
			break
		}
	}
	t.printResumeHint()
	return nil
}

// openSession prints the greeting and the latest messages of the session. It fails if the mesh cannot be reached.
func (t *chatSession) openSession(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, remote.Timeout)
	defer cancel()
	if t.Session == "" {
		if _, err := t.mesh.ListAgents(ctx, &troupev1.ListAgentsRequest{}); err != nil { // reports an unreachable mesh before the first message
			return err
		}
		t.Session = uuid.NewString()
		t.printGreeting("new")
		return nil
	}
	resp, err := t.mesh.Sessions.GetSession(ctx, &troupev1.GetSessionRequest{SessionId: t.Session})
	if failure.Is(grpcfailure.FromStatus("troupe", err), failure.NotFound) {
		t.printGreeting("new")
		return nil
	} else if err != nil {
		return err
	}
	s := resp.GetSession()
	if t.User != "" && t.User != s.GetUserId() && s.GetTurns() > 0 {
		return failure.Newf(failure.NotFound, "troupe", "there is no session %s of user %s; leave --session out to begin one", t.Session, t.User)
	}
	t.User, t.exists = cmp.Or(s.GetUserId(), t.User), true
	t.printGreeting(fmt.Sprintf("%s, %s", memorywire.SessionFromProto(s).State, console.FormatCount(int64(s.GetTurns()), "turn")))
	if err := t.printHistory(ctx, s.GetLastSequence()); err != nil {
		return err
	}
	t.pending = s.GetPending()
	if s.GetOpenTurnId() != "" && s.GetLastTraceId() != "" {
		t.unfinishedTurn = func(ctx context.Context) stream { return t.mesh.Watch(ctx, s.GetLastTraceId(), t.lastSequence) }
		t.printNote("A turn is running here. Enter shows it; what you type waits for its end.")
	}
	return nil
}

func (t *chatSession) printGreeting(what string) {
	with := "the default workflow"
	if t.Target != "" {
		with = console.EscapeLine(t.Target)
	}
	t.printNote("Session %s (%s). You talk with %s; /help lists what you can do.", t.Session, what, with)
}

// historyMessages is the number of latest messages that the chat prints. historyCharacters is the number of
// characters that it prints of each.
const (
	historyMessages   = 10
	historyCharacters = 300
)

func (t *chatSession) printHistory(ctx context.Context, last int64) error {
	resp, err := t.mesh.Sessions.ListMessages(ctx, &troupev1.ListMessagesRequest{
		SessionId:     t.Session,
		AfterSequence: max(0, last-historyMessages), PageSize: historyMessages,
	})
	if err != nil {
		return err
	}
	for _, m := range wire.MessagesFromProto(resp.GetMessages()) {
		switch m.Role {
		case conversation.RoleTool:
		case conversation.RoleUser:
			fmt.Fprintf(t.term.Out, "> %s\n", console.EscapeBeginning(m.Text, historyCharacters))
		default:
			fmt.Fprintf(t.term.Out, "%s %s\n", t.term.ApplyStyle(console.Dim, console.EscapeLine(render.Speaker(m))+":"), console.EscapeBeginning(m.Text,
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
func (t *chatSession) handleLine(ctx context.Context, text string) bool {
	switch command := strings.TrimSpace(text); {
	case command == "" && t.unfinishedTurn != nil:
		t.followTurn(ctx)
	case command == "":
	case !strings.HasPrefix(text, "/"):
		t.sendMessage(ctx, text)
	case command == "/quit":
		return false
	case command == "/help":
		fmt.Fprintln(t.term.Out, chatHelp)
	case command == "/session":
		t.printNote("Session %s. Continue it with: %s", t.Session, t.resumeCommand())
	case command == "/pending":
		t.refreshPending(ctx)
	case command == "/new":
		if t.exists {
			t.printNote("Previous session: %s", t.resumeCommand())
		}
		*t = chatSession{chatCommand: t.chatCommand, term: t.term, mesh: t.mesh, auth: t.auth, lines: t.lines, interrupts: t.interrupts, hold: t.hold}
		t.Session = uuid.NewString()
		t.printGreeting("new")
	default:
		t.printNote("There is no %s; /help lists what there is.", console.EscapeLine(command))
	}
	return true
}

// refreshPending reads the pending calls of the session from the mesh.
func (t *chatSession) refreshPending(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, remote.Timeout)
	defer cancel()
	resp, err := t.mesh.Sessions.GetSession(ctx, &troupev1.GetSessionRequest{SessionId: t.Session})
	if err != nil {
		t.printError(err)
		return
	}
	t.pending, t.postponed = resp.GetSession().GetPending(), nil
	if len(t.pending) == 0 {
		t.printNote("Nothing waits.")
	}
}

// sendMessage sends a message. If another turn of the session runs, it retries after that turn has ended.
func (t *chatSession) sendMessage(ctx context.Context, text string) {
	if len(t.pending) > 0 {
		t.printNote("A message leaves what waits undone.")
	}
	t.send(ctx, &troupev1.OrchestrateRequest{
		Input:  &troupev1.OrchestrateRequest_Text{Text: strings.ToValidUTF8(text, "\uFFFD")},
		Target: t.Target, OnBusy: troupev1.OnBusy_ON_BUSY_ENQUEUE,
	})
}

func (t *chatSession) send(ctx context.Context, req *troupev1.OrchestrateRequest) {
	req.SessionId, req.RequestId, req.UserId, req.Auth = t.Session, uuid.NewString(), t.User, t.auth
	if t.Timeout != 0 {
		req.Timeout = durationpb.New(t.Timeout)
	}
	t.lastSequence, t.pending, t.postponed = 0, nil, nil
	t.unfinishedTurn = func(ctx context.Context) stream { return remote.NewRetryingClient(t.mesh, t.term).Turn(ctx, req) }
	t.followTurn(ctx)
}

// resumeCommand returns the shell command with which the user resumes the session later.
func (t *chatSession) resumeCommand() string {
	set := func(flag, value string) string {
		if value == "" {
			return ""
		}
		return " --" + flag + " " + console.QuoteForShell(value)
	}
	return "troupe chat" + t.Flags() + set("session", t.Session) + set("target", t.Target) + set("user", t.User) + set("actor",
		t.Actor) + t.repeatHint()
}

// printResumeHint prints how to resume the session, unless the session has no turn.
func (t *chatSession) printResumeHint() {
	if t.exists {
		t.printNote("Continue with: %s", t.resumeCommand())
	}
}

func (t *chatSession) printError(err error) {
	fmt.Fprintf(t.term.Out, "%s %s\n", t.term.ApplyStyle(console.Red, "Failed:"), console.EscapeAndIndent(failure.PlainMessage(t.ExplainError(err)), 2))
}

func (t *chatSession) printNote(format string, args ...any) {
	fmt.Fprintln(t.term.Out, t.term.ApplyStyle(console.Dim, fmt.Sprintf(format, args...)))
}

// printTurn prints the rest of a turn and stores the calls that are pending after it.
func (t *chatSession) printTurn(all stream) error {
	r := render.NewChatView(t.term)
	for e, err := range all {
		if err != nil {
			r.EndText()
			return err
		}
		t.exists = true
		if s := e.GetSequence(); s > 0 {
			if s <= t.lastSequence {
				continue // the watch started again
			}
			t.lastSequence = s
		}
		r.PrintEvent(e)
		if end := e.GetTurnResult(); end != nil {
			t.pending = end.GetPending()
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
func (t *chatSession) followTurn(ctx context.Context) {
	waiting, stop := context.WithCancel(ctx)
	var watching sync.WaitGroup
	var by os.Signal // signal that ended the wait (nil if none did)
	watching.Go(func() {
		select {
		case by = <-t.interrupts:
			stop()
		case <-waiting.Done():
		}
	})
	err := t.printTurn(t.unfinishedTurn(waiting))
	stop()
	watching.Wait()
	switch {
	case err == nil:
		t.unfinishedTurn, t.lastSequence = nil, 0
	case by != nil && t.lastSequence > 0:
		t.printNote("The turn continues without you. Press Enter to see the rest; " +
			"a message that you type waits until the turn ends. Press Ctrl-C again to leave.")
	case by != nil:
		t.printNote("No event of the turn has arrived, so it may not have begun. Press Enter to send it again. Press Ctrl-C again to leave.")
	default:
		t.printError(err)
		if t.lastSequence == 0 && !mayHaveStarted(err) {
			t.unfinishedTurn = nil // the mesh rejected the turn
		} else {
			t.printNote("The turn may go on all the same; Enter looks for it.")
		}
	}
	t.interruptedOnce, t.terminated = by != nil, by != nil && by != os.Interrupt
}
