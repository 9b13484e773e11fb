package main

import (
	"cmp"
	"context"
	"fmt"
	"strings"
	"text/tabwriter"
	"time"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/troupe-dev/troupe/internal/wire"
	"github.com/troupe-dev/troupe/internal/wire/instancewire"
	"github.com/troupe-dev/troupe/internal/wire/memorywire"
	"github.com/troupe-dev/troupe/pkg/client"
	troupev1 "github.com/troupe-dev/troupe/pkg/gen/troupe/v1"
)

type get struct {
	Agents    getAgents    `cmd:"" help:"Agents, with how many of their instances are ready."`
	Instances getInstances `cmd:"" help:"Registered instances."`
	Workflows getWorkflows `cmd:"" help:"Workflows that calls may name as their target."`
	Traces    getTraces    `cmd:"" help:"The latest traces."`
	Decisions getDecisions `cmd:"" help:"The latest decisions about agents, instances and tools."`
	Sessions  getSessions  `cmd:"" help:"The latest conversations."`
	Session   getSession   `cmd:"" help:"A conversation with its messages."`
	Approvals getApprovals `cmd:"" help:"Tool calls that wait for an approval, or for a result."`
	Artifacts getArtifacts `cmd:"" help:"What the turns of a conversation made, and what its user has under user:."`
	Artifact  getArtifact  `cmd:"" help:"The content of an artifact."`
}

// query is part of every get command.
type query struct {
	server `embed:""`
	JSON   bool `name:"json" help:"Print the answer in protobuf JSON."`
}

// queryTime bounds a get command.
const queryTime = 10 * time.Second

// run asks, and prints the answer as JSON or as the given table.
func (q query) run(ctx context.Context, term terminal, ask func(context.Context, *client.Client) (proto.Message, error), table func(w *tabwriter.Writer)) error {
	return q.within(ctx, queryTime, term, ask, table)
}

// within is run for what takes its time.
func (q query) within(ctx context.Context, most time.Duration, term terminal, ask func(context.Context, *client.Client) (proto.Message, error), table func(w *tabwriter.Writer)) error {
	c, conn, err := q.dial()
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close() }()
	ctx, cancel := context.WithTimeout(ctx, most)
	defer cancel()
	resp, err := ask(ctx, c)
	if err != nil {
		return q.told(err)
	}
	if q.JSON {
		text, err := protojson.MarshalOptions{Multiline: true}.Marshal(resp)
		if err != nil {
			return err
		}
		fmt.Fprintln(term.out, string(text))
		return nil
	}
	w := tabwriter.NewWriter(term.out, 0, 0, 2, ' ', 0)
	table(w)
	return w.Flush()
}

type getAgents struct {
	query `embed:""`
}

// Run prints the agents.
func (g *getAgents) Run(ctx context.Context, term terminal) error {
	var resp *troupev1.ListAgentsResponse
	return g.run(ctx, term, func(ctx context.Context, c *client.Client) (_ proto.Message, err error) {
		resp, err = c.ListAgents(ctx, &troupev1.ListAgentsRequest{})
		return resp, err
	}, func(w *tabwriter.Writer) {
		fmt.Fprintln(w, "NAME\tREADY\tVERSION\tWORKFLOWS\tDESCRIPTION")
		for _, a := range resp.GetAgents() {
			about := cmp.Or(shutOut(a.GetQuarantine()), a.GetDescription())
			row(w, a.GetName(), fmt.Sprintf("%d/%d", a.GetReady(), a.GetInstances()),
				orDash(strings.Join(a.GetVersions(), ",")), orDash(strings.Join(a.GetWorkflows(), ",")), orDash(about))
		}
	})
}

type getInstances struct {
	query `embed:""`
	Agent string `help:"Only those of one agent." placeholder:"NAME"`
}

// Run prints the instances.
func (g *getInstances) Run(ctx context.Context, term terminal) error {
	var resp *troupev1.ListInstancesResponse
	return g.run(ctx, term, func(ctx context.Context, c *client.Client) (_ proto.Message, err error) {
		resp, err = c.ListInstances(ctx, &troupev1.ListInstancesRequest{Agent: g.Agent, Live: true})
		return resp, err
	}, func(w *tabwriter.Writer) {
		fmt.Fprintln(w, "INSTANCE\tAGENT\tSTATE\tLEASE\tSTEPS\tADDRESS\tVERSION\tUPTIME")
		for _, in := range resp.GetInstances() {
			row(w, in.GetInstanceId(), in.GetAgent(), registeredState(in),
				lease(in.GetStatus().GetLease()), steps(in), in.GetAddress(), orDash(in.GetVersion()), ago(in.GetStarted()))
		}
	})
}

// steps are those that run and those that may; a worker that does not answer tells only the
// latter.
func steps(in *troupev1.Instance) string {
	if in.GetStatus() == nil {
		return fmt.Sprintf("?/%d", in.GetCapacity())
	}
	return fmt.Sprintf("%d/%d", in.GetStatus().GetInFlight(), in.GetCapacity())
}

// registeredState is the registered state, and what keeps steps away beside it.
func registeredState(in *troupev1.Instance) string {
	state := string(instancewire.StateFromProto(in.GetState()))
	switch in.GetDesired() {
	case troupev1.DesiredState_DESIRED_STATE_PAUSE:
		if in.GetState() != troupev1.InstanceState_INSTANCE_STATE_PAUSED {
			state += ", to pause"
		}
	case troupev1.DesiredState_DESIRED_STATE_DRAIN:
		state += ", to drain"
	default:
	}
	if in.GetMissing() {
		state += ", missing"
	}
	if in.GetQuarantine() != nil {
		state += ", quarantined"
	}
	if in.GetUnproven() != "" {
		state += ", unproven"
	}
	return state
}

type getTraces struct {
	query `embed:""`
	Limit int32  `help:"How many at most, up to 200." default:"20"`
	Root  string `help:"Only those of the run that began with this trace." placeholder:"ID" type:"trace"`

	Quarantined bool `help:"Only those that took down all that they were given to."`
}

// Run prints the traces.
func (g *getTraces) Run(ctx context.Context, term terminal) error {
	var resp *troupev1.ListTracesResponse
	return g.run(ctx, term, func(ctx context.Context, c *client.Client) (_ proto.Message, err error) {
		resp, err = c.ListTraces(ctx, &troupev1.ListTracesRequest{PageSize: g.Limit, RootTraceId: g.Root, Quarantined: g.Quarantined})
		return resp, err
	}, func(w *tabwriter.Writer) {
		fmt.Fprintln(w, "TRACE\tSESSION\tTURN\tSTATE\tEVENTS\tAGE\tTEXT")
		for _, t := range resp.GetTraces() {
			row(w, t.GetTraceId(), t.GetSessionId(), t.GetTurn(),
				traceState(t), t.GetLastSequence(), ago(t.GetStarted()), brief(t.GetText(), 40))
		}
	})
}

type getSession struct {
	query `embed:""`
	ID    string `arg:"" help:"Id of the session."`
}

// Run prints the session and its messages.
func (g *getSession) Run(ctx context.Context, term terminal) error {
	var s *troupev1.Session
	var messages []*troupev1.Message
	return g.run(ctx, term, func(ctx context.Context, c *client.Client) (proto.Message, error) {
		resp, err := c.Sessions.GetSession(ctx, &troupev1.GetSessionRequest{SessionId: g.ID})
		if err != nil || g.JSON {
			return resp, err
		}
		s = resp.GetSession()
		messages, err = allMessages(ctx, c, g.ID)
		return resp, err
	}, func(w *tabwriter.Writer) {
		row(w, "session", s.GetSessionId())
		row(w, "state", memorywire.SessionFromProto(s).State)
		row(w, "turns", s.GetTurns())
		row(w, "messages", fmt.Sprintf("%d (%d bytes)", s.GetMessages(), s.GetBytes()))
		row(w, "last activity", ago(s.GetLastActivity())+" ago")
		row(w, "last trace", s.GetLastTraceId())
		fmt.Fprintln(w)
		for _, m := range wire.MessagesFromProto(messages) {
			fmt.Fprintf(w, "%d  turn %d  %s:\n%s\n\n", m.Sequence, m.Turn, oneLine(speaker(m)), visible(strings.TrimSpace(spoke(m))))
		}
	})
}

// allMessages reads page after page.
func allMessages(ctx context.Context, c *client.Client, session string) ([]*troupev1.Message, error) {
	var all []*troupev1.Message
	for after := int64(0); ; after = all[len(all)-1].GetSequence() {
		resp, err := c.Sessions.ListMessages(ctx, &troupev1.ListMessagesRequest{SessionId: session, AfterSequence: after, PageSize: 1000})
		if err != nil || len(resp.GetMessages()) == 0 {
			return all, err
		}
		all = append(all, resp.GetMessages()...)
	}
}

func traceState(t *troupev1.Trace) string {
	if t.GetResult() == nil {
		return "running"
	}
	state := string(memorywire.OutcomeFromProto(t.GetResult().GetOutcome()))
	if t.GetQuarantined() {
		state += ", quarantined"
	}
	return state
}

func ago(t *timestamppb.Timestamp) string {
	if t == nil {
		return "-"
	}
	return time.Since(t.AsTime()).Round(time.Second).String()
}

func orDash(s string) string {
	if s == "" {
		return "-"
	}
	return s
}
