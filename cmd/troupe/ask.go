package main

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"strings"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/troupe-dev/troupe/pkg/client"
	"github.com/troupe-dev/troupe/pkg/failure"
	troupev1 "github.com/troupe-dev/troupe/pkg/gen/troupe/v1"
	"github.com/troupe-dev/troupe/pkg/process"
	"github.com/troupe-dev/troupe/pkg/rpc"
	"github.com/troupe-dev/troupe/pkg/telemetry"
)

// server is where the orchestrator is; part of every command that talks to one.
type server struct {
	Addr string `help:"Address of the orchestrator." default:"127.0.0.1:7400" env:"TROUPE_ADDR"`
}

func (s server) dial() (*client.Client, *grpc.ClientConn, error) {
	conn, err := rpc.Dial(s.Addr, telemetry.Discard())
	if err != nil {
		return nil, nil, err
	}
	return client.New(conn), conn, nil
}

// told adds what to do to an error of a mesh that is not there. An error that the mesh
// itself sent has no cause here, and says enough.
func (s server) told(err error) error {
	err = failure.FromStatus("troupe", err)
	if e, ok := errors.AsType[*failure.Error](err); ok && e.Mode == failure.SystemNetwork && e.Cause != nil {
		return fmt.Errorf("cannot reach a mesh at %s; start one with: troupe dev", s.Addr)
	}
	return err
}

type ask struct {
	server    `embed:""`
	inName    `embed:""`
	Session   string        `help:"Conversation to go on with. Empty: a new one." placeholder:"ID"`
	User      string        `help:"Whose conversation it is. The first turn decides; another user's is not found." placeholder:"ID"`
	RequestID string        `help:"Makes the call repeatable: the same id gets the same turn." placeholder:"ID"`
	Target    string        `help:"Workflow or agent that shall answer. Empty: the default workflow." placeholder:"NAME"`
	Timeout   time.Duration `help:"Time that the turn may take. 0: the orchestrator's default." default:"0"`
	JSON      bool          `name:"json" help:"Print one Event a line in protobuf JSON."`
	Text      []string      `arg:"" help:"What to ask."`
}

// Help is the long help of the command.
func (ask) Help() string {
	return "Exit code 0: answered. 1: failed. 2: the call cannot be. 3: an agent asks back; answer with --session."
}

// Run asks, shows the events, and says by the exit code how it ended.
func (a *ask) Run(ctx context.Context, term terminal) error {
	c, conn, err := a.dial()
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close() }()
	req := &troupev1.OrchestrateRequest{
		Input:     &troupev1.OrchestrateRequest_Text{Text: strings.Join(a.Text, " ")},
		SessionId: a.Session, UserId: a.User, RequestId: a.RequestID, Target: a.Target,
	}
	if req.Auth, err = a.auth(); err != nil {
		return err
	}
	if a.Timeout != 0 {
		req.Timeout = durationpb.New(a.Timeout)
	}
	admitted, err := show(term, a.JSON, c.Turn(ctx, req))
	if _, ended := errors.AsType[exit](err); err != nil && !ended &&
		(admitted || failure.Is(err, failure.TraceOrphaned, failure.SystemNetwork, failure.SystemTimeout)) {
		fmt.Fprintf(term.err, "The turn may have begun, and go on without you. To see how it ends, send the same text with: --session %s --request-id %s%s\n",
			req.GetSessionId(), req.GetRequestId(), a.again())
	}
	return a.told(err)
}

type watch struct {
	server `embed:""`
	After  uint64 `help:"Sequence of the last event that is known already." default:"0"`
	JSON   bool   `name:"json" help:"Print one Event a line in protobuf JSON."`
	Trace  string `arg:"" help:"Id of the trace."`
}

// Run shows the events of the trace, to its end.
func (w *watch) Run(ctx context.Context, term terminal) error {
	c, conn, err := w.dial()
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close() }()
	_, err = show(term, w.JSON, c.Watch(ctx, w.Trace, w.After))
	return w.told(err)
}

// show prints events as they come, and says whether there were any and how the turn ended:
// nil, an exit, or why it is not known.
func show(term terminal, asJSON bool, events iter.Seq2[*troupev1.Event, error]) (begun bool, _ error) {
	v := &view{term: term}
	for e, err := range events {
		if err != nil {
			v.endText()
			return begun, err
		}
		begun = true
		if asJSON {
			line, err := protojson.Marshal(e)
			if err != nil {
				return begun, err
			}
			fmt.Fprintln(term.out, string(line))
		} else {
			v.event(e)
		}
		if r := e.GetTurnResult(); r != nil {
			return begun, outcome(r.GetOutcome())
		}
	}
	return begun, nil
}

func outcome(o troupev1.TurnOutcome) error {
	switch o {
	case troupev1.TurnOutcome_TURN_OUTCOME_COMPLETED:
		return nil
	case troupev1.TurnOutcome_TURN_OUTCOME_INPUT_REQUIRED:
		return exit(exitInputRequired)
	default:
		return exit(process.ExitError)
	}
}
