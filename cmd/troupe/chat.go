package main

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/google/uuid"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/troupe-dev/troupe/internal/grpcfailure"
	"github.com/troupe-dev/troupe/internal/wire"
	"github.com/troupe-dev/troupe/internal/wire/memorywire"
	"github.com/troupe-dev/troupe/pkg/conversation"
	"github.com/troupe-dev/troupe/pkg/failure"
	troupev1 "github.com/troupe-dev/troupe/pkg/gen/troupe/v1"
)

type chat struct {
	server  `embed:""`
	inName  `embed:""`
	Target  string        `help:"Workflow or agent to talk with. Empty: the default workflow. --agent says the same." aliases:"agent" placeholder:"NAME"`
	Session string        `help:"Conversation to go on with. Empty: a new one." placeholder:"ID"`
	User    string        `help:"Whose conversation it is. Empty: as it began." placeholder:"ID"`
	Timeout time.Duration `help:"Time that a turn may take. 0: the default of the workflow, or of the orchestrator." default:"0"`
}

// Help is the long help of the command.
func (chat) Help() string {
	return `Ctrl-C stops waiting for a turn, which goes on; a second one leaves, as Ctrl-D does. /help lists what else there is. Without a terminal it reads one message or answer a line from standard input.

Example: troupe chat --agent research

With a history of what you typed: rlwrap troupe chat`
}

// Run talks until its input ends.
func (c *chat) Run(ctx context.Context, term terminal) error {
	auth, err := c.auth()
	if err != nil {
		return err
	}
	mesh, conn, err := c.dial()
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
	t := &talk{chat: *c, term: term, mesh: mesh, sign: auth, interrupts: interrupts, hush: newHush()}
	t.lines = listen(ctx, term.in, t.hush)
	return t.run(ctx)
}

// run is the conversation, from its history to how one goes on with it.
func (t *talk) run(ctx context.Context) error {
	if err := t.open(ctx); err != nil {
		return t.told(err)
	}
	for t.answer(ctx) {
		text, ok := t.read("> ")
		if !ok || !t.take(ctx, text) {
			break
		}
	}
	t.leave()
	return nil
}

// open greets, and shows what was said before.
func (t *talk) open(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, queryTime)
	defer cancel()
	if t.Session == "" {
		if _, err := t.mesh.ListAgents(ctx, &troupev1.ListAgentsRequest{}); err != nil { // better now than after the first message
			return err
		}
		t.Session = uuid.NewString()
		t.greet("new")
		return nil
	}
	resp, err := t.mesh.Sessions.GetSession(ctx, &troupev1.GetSessionRequest{SessionId: t.Session})
	if failure.Is(grpcfailure.FromStatus("troupe", err), failure.NotFound) {
		t.greet("new")
		return nil
	} else if err != nil {
		return err
	}
	s := resp.GetSession()
	if t.User != "" && t.User != s.GetUserId() && s.GetTurns() > 0 {
		return failure.Newf(failure.NotFound, "troupe", "there is no session %s of user %s; leave --session out to begin one", t.Session, t.User)
	}
	t.User, t.begun = cmp.Or(s.GetUserId(), t.User), true
	t.greet(fmt.Sprintf("%s, %s", memorywire.SessionFromProto(s).State, counted(int64(s.GetTurns()), "turn")))
	if err := t.history(ctx, s.GetLastSequence()); err != nil {
		return err
	}
	t.waits = s.GetPending()
	if s.GetOpenTurnId() != "" && s.GetLastTraceId() != "" {
		t.unseen = func(ctx context.Context) stream { return t.mesh.Watch(ctx, s.GetLastTraceId(), t.seen) }
		t.note("A turn is running here. Enter shows it; what you type waits for its end.")
	}
	return nil
}

func (t *talk) greet(what string) {
	with := "the default workflow"
	if t.Target != "" {
		with = oneLine(t.Target)
	}
	t.note("Session %s (%s). You talk with %s; /help lists what you can do.", t.Session, what, with)
}

// lastShown is how many of the latest messages are, and shownText how much of each.
const (
	lastShown = 10
	shownText = 300
)

func (t *talk) history(ctx context.Context, last int64) error {
	resp, err := t.mesh.Sessions.ListMessages(ctx, &troupev1.ListMessagesRequest{SessionId: t.Session, AfterSequence: max(0, last-lastShown), PageSize: lastShown})
	if err != nil {
		return err
	}
	for _, m := range wire.MessagesFromProto(resp.GetMessages()) {
		switch m.Role {
		case conversation.RoleTool:
		case conversation.RoleUser:
			fmt.Fprintf(t.term.out, "> %s\n", brief(m.Text, shownText))
		default:
			fmt.Fprintf(t.term.out, "%s %s\n", t.term.paint(dim, oneLine(speaker(m))+":"), brief(m.Text, shownText))
		}
	}
	return nil
}

const help = `  /session  the id of this session, and how to go on with it
  /pending  ask again about the calls that wait
  /new      begin a new session
  /quit     leave; so do Ctrl-D, and Ctrl-C twice
Ctrl-C while a turn runs stops waiting for it; it goes on, and Enter shows the rest.
A space before a slash sends it as a message.`

// take does what a line asks for. It reports whether the conversation goes on.
func (t *talk) take(ctx context.Context, text string) bool {
	switch command := strings.TrimSpace(text); {
	case command == "" && t.unseen != nil:
		t.follow(ctx)
	case command == "":
	case !strings.HasPrefix(text, "/"):
		t.say(ctx, text)
	case command == "/quit":
		return false
	case command == "/help":
		fmt.Fprintln(t.term.out, help)
	case command == "/session":
		t.note("Session %s. Go on with it: %s", t.Session, t.again())
	case command == "/pending":
		t.look(ctx)
	case command == "/new":
		if t.begun {
			t.note("The session before: %s", t.again())
		}
		*t = talk{chat: t.chat, term: t.term, mesh: t.mesh, sign: t.sign, lines: t.lines, interrupts: t.interrupts, hush: t.hush}
		t.Session = uuid.NewString()
		t.greet("new")
	default:
		t.note("There is no %s; /help lists what there is.", oneLine(command))
	}
	return true
}

// look asks the mesh what waits.
func (t *talk) look(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, queryTime)
	defer cancel()
	resp, err := t.mesh.Sessions.GetSession(ctx, &troupev1.GetSessionRequest{SessionId: t.Session})
	if err != nil {
		t.failed(err)
		return
	}
	t.waits, t.later = resp.GetSession().GetPending(), nil
	if len(t.waits) == 0 {
		t.note("Nothing waits.")
	}
}

// say sends a message. While a turn of the session runs it waits for its end.
func (t *talk) say(ctx context.Context, text string) {
	if len(t.waits) > 0 {
		t.note("A message leaves what waits undone.")
	}
	t.send(ctx, &troupev1.OrchestrateRequest{
		Input:  &troupev1.OrchestrateRequest_Text{Text: strings.ToValidUTF8(text, "\uFFFD")},
		Target: t.Target, OnBusy: troupev1.OnBusy_ON_BUSY_ENQUEUE,
	})
}

func (t *talk) send(ctx context.Context, req *troupev1.OrchestrateRequest) {
	req.SessionId, req.RequestId, req.UserId, req.Auth = t.Session, uuid.NewString(), t.User, t.sign
	if t.Timeout != 0 {
		req.Timeout = durationpb.New(t.Timeout)
	}
	t.seen, t.waits, t.later = 0, nil, nil
	t.unseen = func(ctx context.Context) stream { return patient(t.mesh, t.term).Turn(ctx, req) }
	t.follow(ctx)
}

// again is the command that goes on with the session.
func (t *talk) again() string {
	set := func(flag, value string) string {
		if value == "" {
			return ""
		}
		return " --" + flag + " " + word(value)
	}
	return "troupe chat" + t.flag() + set("session", t.Session) + set("target", t.Target) + set("user", t.User) + set("actor", t.Actor) + t.inName.again()
}

// leave says how to go on, when there is something to go on with.
func (t *talk) leave() {
	if t.begun {
		t.note("Go on with: %s", t.again())
	}
}

func (t *talk) failed(err error) {
	fmt.Fprintf(t.term.out, "%s %s\n", t.term.paint(red, "Failed:"), indented(failure.Plain(t.told(err)), 2))
}

func (t *talk) note(format string, args ...any) {
	fmt.Fprintln(t.term.out, t.term.paint(dim, fmt.Sprintf(format, args...)))
}
