package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/troupe-dev/troupe/internal/grpcfailure"
	"github.com/troupe-dev/troupe/internal/identity"
	"github.com/troupe-dev/troupe/internal/identity/bearer"
	"github.com/troupe-dev/troupe/internal/process"
	"github.com/troupe-dev/troupe/internal/rpc"
	"github.com/troupe-dev/troupe/internal/telemetry"
	"github.com/troupe-dev/troupe/pkg/client"
	"github.com/troupe-dev/troupe/pkg/failure"
	troupev1 "github.com/troupe-dev/troupe/pkg/gen/troupe/v1"
)

// server is where the orchestrator is; part of every command that talks to one.
type server struct {
	Addr string `help:"Address of the orchestrator." default:"127.0.0.1:7400" env:"TROUPE_ADDR"`

	TLS   identity.Trust `embed:""`
	Token bearer.Token   `embed:""`
}

// defaultAddr is that of troupe dev.
const defaultAddr = "127.0.0.1:7400"

func (s server) dial() (*client.Client, *grpc.ClientConn, error) {
	if err := hostPort("addr", s.Addr); err != nil {
		return nil, nil, err
	}
	creds, err := s.TLS.Credentials()
	if err != nil {
		return nil, nil, failure.New(failure.UserInvalidInput, "troupe", err.Error())
	}
	token, err := s.Token.Credentials(s.Addr, s.TLS != (identity.Trust{}))
	if err != nil {
		return nil, nil, failure.New(failure.UserInvalidInput, "troupe", err.Error())
	}
	conn, err := rpc.DialWith(creds, s.Addr, telemetry.Discard())
	if err != nil {
		return nil, nil, err
	}
	return client.New(client.Signed(conn, token)), conn, nil
}

// told adds what to do to an error of a mesh that is not there, and says what is wrong with a request in
// the words of the command line. An error that the mesh itself sent has no cause here.
func (s server) told(err error) error {
	err = grpcfailure.FromStatus("troupe", err)
	e, ok := errors.AsType[*failure.Error](err)
	if !ok || e.Cause == nil {
		return asTyped(err)
	}
	missed, why := grpcfailure.ClassifyDial(e.Cause)
	switch {
	case missed == grpcfailure.DialUntrusted:
		return fmt.Errorf("the mesh at %s cannot be trusted by --tls-ca %s, or speaks plain text: %s", s.Addr, s.TLS.CA, why)
	case missed == grpcfailure.DialRejected && strings.Contains(why, "tls: "):
		return fmt.Errorf("the mesh at %s wants a certificate that it trusts, with --tls-cert: %s", s.Addr, why)
	case missed == grpcfailure.DialRejected:
		return fmt.Errorf("the mesh at %s ended the connection; it may want TLS, with --tls-ca, or a certificate of this side, with --tls-cert", s.Addr)
	case missed == grpcfailure.DialUnreachable && s.Addr == defaultAddr:
		return fmt.Errorf("cannot reach a mesh at %s: %s; start one with: troupe dev", s.Addr, why)
	case missed == grpcfailure.DialUnreachable:
		return fmt.Errorf("cannot reach a mesh at %s: %s", s.Addr, why)
	case e.Mode == failure.SystemNetwork:
		return fmt.Errorf("the mesh at %s went away", s.Addr)
	}
	return err
}

// flag is what a command has to say to reach the same orchestrator from the same shell.
func (s server) flag() string {
	text := ""
	if s.Addr != "" && s.Addr != cmp.Or(os.Getenv("TROUPE_ADDR"), defaultAddr) {
		text = " --addr " + word(s.Addr)
	}
	for _, f := range []struct{ flag, value, variable string }{
		{"--tls-ca", s.TLS.CA, "TROUPE_ADDR_TLS_CA"},
		{"--tls-cert", s.TLS.Cert, "TROUPE_ADDR_TLS_CERT"},
		{"--tls-key", s.TLS.Key, "TROUPE_ADDR_TLS_KEY"},
		{"--token-file", s.Token.File, "TROUPE_TOKEN_FILE"},
	} {
		if f.value != os.Getenv(f.variable) {
			text += " " + f.flag + " " + word(f.value)
		}
	}
	return text
}

// sender is part of every command that sends a turn and shows it.
type sender struct {
	server    `embed:""`
	inName    `embed:""`
	RequestID string        `help:"Makes the call repeatable: the same id gets the same turn." placeholder:"ID"`
	Timeout   time.Duration `help:"Time that the turn may take. 0: the default of the workflow, or of the orchestrator." default:"0"`
	JSON      bool          `name:"json" help:"Print one Event a line in protobuf JSON."`
}

// send sends what begin makes, shows the events, and says by the exit code how it ended.
// Begin also says how the same is sent again.
func (s *sender) send(ctx context.Context, term terminal, begin func(context.Context, *client.Client) (_ *troupev1.OrchestrateRequest, again string, _ error)) error {
	auth, err := s.auth()
	if err != nil {
		return err
	}
	c, conn, err := s.dial()
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close() }()
	req, again, err := begin(ctx, c)
	if err != nil {
		return s.told(err)
	}
	req.RequestId, req.Auth = s.RequestID, auth
	if s.Timeout != 0 {
		req.Timeout = durationpb.New(s.Timeout)
	}
	v := &view{term: term, server: s.server, user: req.GetUserId()}
	admitted, err := v.show(s.JSON, patient(c, term).Turn(ctx, req))
	if _, ended := errors.AsType[exit](err); err != nil && !ended && (admitted || uncertain(err)) {
		if again == "" {
			again = "send the same text with: --session " + req.GetSessionId()
			if len(req.GetParts()) > 0 {
				again = "send the same text and files with: --session " + req.GetSessionId()
			}
		}
		asked := labels{
			Profile: req.GetProfile(), Need: req.GetNeeds(), Metadata: req.GetMetadata(),
			Priority: req.Priority, Tag: req.GetTags(), //nolint:protogetter // whether a priority is there counts
		}
		fmt.Fprintf(term.err, "The turn may have begun, and go on without you. To see how it ends, %s --request-id %s%s\n",
			again, req.GetRequestId(), budgetAgain(req.GetBudget())+asked.again()+s.again())
	}
	return s.told(err)
}

// patient is a client that says so when it waits because the mesh is overloaded.
func patient(c *client.Client, term terminal) *client.Client {
	return c.Waiting(func(_ error, d time.Duration) {
		fmt.Fprintf(term.err, "The mesh has more to do than it can; asking again in %s.\n", d.Round(100*time.Millisecond))
	})
}

// uncertain reports whether a turn may run of which nothing was seen but this error.
func uncertain(err error) bool {
	return failure.Is(err, failure.TraceOrphaned, failure.SystemNetwork, failure.SystemTimeout)
}

type ask struct {
	sender  `embed:""`
	Session string   `help:"Conversation to go on with. Empty: a new one." placeholder:"ID"`
	User    string   `help:"Whose conversation it is. The first turn decides; another user's is not found." placeholder:"ID"`
	Target  string   `help:"Workflow or agent that shall answer. Empty: the default workflow." placeholder:"NAME"`
	File    []string `help:"A file to ask about, at most 1 MiB; it becomes an artifact of the conversation. May be repeated, up to 8 files and 3 MiB." placeholder:"PATH" sep:"none"`
	labels  `embed:""`
	earlier `embed:""`
	bounds  `embed:""`
	Text    []string `arg:"" optional:"" help:"What to ask. May be left out with --file, --resume and --from."`
}

// Validate asks for something to send.
func (a *ask) Validate() error {
	if err := a.check(len(a.Text)+len(a.File) > 0); err != nil {
		return err
	}
	if len(a.Text) == 0 && len(a.File) == 0 && a.from() == nil {
		return errors.New("expected \"<text> ...\", or a --file")
	}
	return nil
}

// Help is the long help of the command.
func (ask) Help() string {
	return `Exit code 0: answered. 1: failed. 2: the call cannot be. 3: an agent asks back, or a tool call waits for you; the last lines say how to answer.

Example: troupe ask "What may an agent write?"

Example: troupe ask --file report.pdf "What does it say about costs?"

Example: troupe ask --resume 4f3c… goes on with a turn that failed

Example: troupe ask --from 4f3c… --step 2 "And in winter?" goes another way from its second step`
}

// Run asks, shows the events, and says by the exit code how it ended.
func (a *ask) Run(ctx context.Context, term terminal) error {
	files, err := client.Files(a.File...)
	if err != nil {
		return err
	}
	limits, err := a.limits()
	if err != nil {
		return err
	}
	req := &troupev1.OrchestrateRequest{
		SessionId: a.Session, UserId: a.User, Target: a.Target, Profile: a.Profile, Needs: a.Need, Metadata: a.Metadata, Parts: files, From: a.from(),
		Priority: a.Priority, Tags: a.Tag, Budget: limits,
	}
	if len(a.Text) > 0 {
		req.Input = &troupev1.OrchestrateRequest_Text{Text: strings.Join(a.Text, " ")}
	}
	return a.send(ctx, term, func(context.Context, *client.Client) (*troupev1.OrchestrateRequest, string, error) {
		return req, a.earlier.again(), nil
	})
}

type watch struct {
	server `embed:""`
	After  uint64 `help:"Sequence of the last event that is known already." default:"0"`
	JSON   bool   `name:"json" help:"Print one Event a line in protobuf JSON."`
	Trace  string `arg:"" help:"Id of the trace; troupe get traces lists them." type:"trace"`
}

// Run shows the events of the trace, to its end.
func (w *watch) Run(ctx context.Context, term terminal) error {
	c, conn, err := w.dial()
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close() }()
	_, err = (&view{term: term, server: w.server}).show(w.JSON, c.Watch(ctx, w.Trace, w.After))
	return w.told(err)
}

// asks reports whether a turn that ended so needs the user.
func asks(o troupev1.TurnOutcome) bool {
	return o == troupev1.TurnOutcome_TURN_OUTCOME_INPUT_REQUIRED || o == troupev1.TurnOutcome_TURN_OUTCOME_AUTH_REQUIRED
}

func outcome(o troupev1.TurnOutcome) error {
	switch o {
	case troupev1.TurnOutcome_TURN_OUTCOME_COMPLETED:
		return nil
	case troupev1.TurnOutcome_TURN_OUTCOME_INPUT_REQUIRED, troupev1.TurnOutcome_TURN_OUTCOME_AUTH_REQUIRED:
		return exit(exitInputRequired)
	default:
		return exit(process.ExitError)
	}
}
