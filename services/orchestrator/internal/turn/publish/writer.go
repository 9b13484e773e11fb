// Package publish writes the events of one turn. A Writer appends them to the trace in the order of their stages.
// It also counts and logs each event and adds up the reported usage. After a takeover it publishes the events that
// earlier owners of the turn left out.
package publish

import (
	"cmp"
	"context"
	"strconv"
	"time"

	"go.uber.org/zap"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/troupe-dev/troupe/internal/audit"
	"github.com/troupe-dev/troupe/internal/telemetry"
	"github.com/troupe-dev/troupe/internal/tracelog"
	"github.com/troupe-dev/troupe/internal/wire"
	"github.com/troupe-dev/troupe/pkg/conversation"
	troupev1 "github.com/troupe-dev/troupe/pkg/gen/troupe/v1"
	"github.com/troupe-dev/troupe/pkg/session"
	"github.com/troupe-dev/troupe/services/orchestrator/internal/routing/cursor"
	"github.com/troupe-dev/troupe/services/orchestrator/internal/trace"
	"github.com/troupe-dev/troupe/services/orchestrator/internal/turn/request"
)

// MaxText is the maximum length, in characters, of the user's text in records and first events (OC-30).
const MaxText = 200

// Publisher opens the writers of turns. It is safe for concurrent use.
type Publisher struct {
	Owner     string // name of this orchestrator in trace records
	Traces    *trace.Traces
	Telemetry *telemetry.Telemetry
	metrics   *turnMetrics
}

// New returns a publisher.
func New(owner string, traces *trace.Traces, t *telemetry.Telemetry) (*Publisher, error) {
	s, err := newTurnMetrics(t.Metrics.Meter("troupe/orchestrator"))
	if err != nil {
		return nil, err
	}
	return &Publisher{Owner: owner, Traces: traces, Telemetry: t, metrics: s}, nil
}

// Turn holds the properties of a turn that its events and its trace need.
type Turn struct {
	Request        request.Request
	Turn           session.Turn
	Target         string
	Fingerprint    string        // fingerprint of the request for which the turn was begun
	Timeout        time.Duration // timeout of the turn (0 means that the trace already has it)
	HasCredentials bool          // whether the request had credentials; an orchestrator that takes over needs to know this
	MaxSteps       int
	Allowance      request.Allowance // used unless the trace says otherwise
}

// Writer writes the events of one turn. Safe for concurrent use.
type Writer struct {
	turn          Turn
	log           *zap.Logger // its lines contain the run
	events        *trace.Log
	traces        *trace.Traces
	stages        stages
	metrics       *turnMetrics
	translation   tracelog.Translator // translates events for the log and adds up their usage
	prior         *PriorEvents
	choicePending bool // whether a published choice may not be stored yet
}

// Open opens the trace of a turn. With takenOver, the trace may contain events of earlier owners; Open then claims
// it and continues after them. Modes: turn_not_open when the trace has ended, fenced, and system_network or
// system_timeout while the store is unavailable.
func (p *Publisher) Open(ctx context.Context, t Turn, takenOver bool) (_ *Writer, err error) {
	events, err := p.Traces.Open(ctx, p.traceClaim(t), takenOver)
	if err != nil {
		return nil, err
	}
	read := false
	defer func() {
		if !read { // a panic was caused by the stored events of an earlier owner
			p.Traces.Abandon(ctx, events)
		}
	}()
	w := &Writer{
		turn: t, log: p.Telemetry.Log.With(zap.String("root_trace_id", events.Root())),
		events: events, traces: p.Traces, metrics: p.metrics,
	}
	w.prior = &PriorEvents{writer: w, turn: t.Turn, published: events.PublishedSteps()}
	if !events.IsEmpty() {
		w.stages.resumeAt(events.Stage())
		p.auditTakeover(t)
	}
	for _, e := range events.Events() {
		w.translation.Spending.AddEvent(e)
	}
	if allowed, ok := request.AllowanceFromPlan(w.translation.Spending.Budget()); ok {
		w.turn.Allowance = allowed
	}
	read = true
	return w, nil
}

// Close ends the trace with its last event, and returns once that event is stored.
func (p *Publisher) Close(ctx context.Context, w *Writer, last *troupev1.Event) error {
	if err := w.stages.advance(last.GetStage()); err != nil {
		w.log.Error("turn ended out of order", zap.String("trace", w.TraceID()), zap.Error(err))
	}
	return p.Traces.Close(ctx, w.events, last)
}

// Abandon stops writing to the trace without ending it. Another orchestrator may then claim it.
func (p *Publisher) Abandon(ctx context.Context, w *Writer) { p.Traces.Abandon(ctx, w.events) }

// ReleaseLease ends the lease of the trace, so that another orchestrator can take it over at once.
func (p *Publisher) ReleaseLease(ctx context.Context, w *Writer) error {
	return p.Traces.Store().ReleaseLease(ctx, w.events.Ref())
}

// traceClaim returns the claim with which the trace of a turn is opened.
func (p *Publisher) traceClaim(t Turn) trace.Claim {
	return trace.Claim{
		Tenant: t.Request.Tenant, Record: p.traceRecord(t),
		Turn: trace.TurnInfo{
			User: t.Request.User, Fingerprint: t.Fingerprint, TurnEpoch: t.Turn.Epoch, Timeout: t.Timeout,
			HasCredentials: t.HasCredentials || !t.Request.Auth.IsZero(), Labels: t.Request.Encode(), Parent: t.Request.ParentTrace,
		},
	}
}

// traceRecord returns the record of the trace, which is stored together with its events.
func (p *Publisher) traceRecord(t Turn) *troupev1.Trace {
	req := t.Request
	return &troupev1.Trace{
		TraceId: t.Turn.Trace, SessionId: req.Session, TurnId: t.Turn.ID, Turn: int32(t.Turn.Number), RequestId: req.RequestID,
		Target: t.Target, Text: conversation.Excerpt(req.Text, MaxText), Started: timestamppb.Now(), Owner: p.Owner,
		Parent: req.Parent, ForkedFrom: req.Source.Proto(), RootTraceId: cmp.Or(req.Root, t.Turn.Trace),
	}
}

// auditTakeover records in the audit log that this orchestrator took over a turn.
func (p *Publisher) auditTakeover(t Turn) {
	p.Telemetry.Audit.Record(audit.Entry{
		Kind: audit.Takeover, Actor: "orchestrator " + p.Owner, Action: "take over turn", Object: t.Turn.Trace, Result: "ok",
		Facts: map[string]string{
			"session_id": t.Request.Session, "tenant": t.Request.Tenant, "epoch": strconv.FormatInt(t.Turn.Epoch, 10),
		},
	})
}

// PriorEvents returns what earlier owners of the turn published.
func (w *Writer) PriorEvents() *PriorEvents { return w.prior }

// Logger returns the logger of the turn. Its lines contain the run.
func (w *Writer) Logger() *zap.Logger { return w.log }

// TraceID names the trace.
func (w *Writer) TraceID() string { return w.turn.Turn.Trace }

// RootTrace returns the root trace of the run.
func (w *Writer) RootTrace() string { return w.events.Root() }

// EventLog returns the event log of the trace.
func (w *Writer) EventLog() *trace.Log { return w.events }

// Allowance returns the allowance of the turn: the one that an earlier owner published, or else the one with which
// the trace was opened.
func (w *Writer) Allowance() request.Allowance { return w.turn.Allowance }

// Write publishes an event that belongs to no step. It fails with resource_quota when the trace is full.
func (w *Writer) Write(ctx context.Context, stage troupev1.Stage, e *troupev1.Event) error {
	e.Stage = stage
	if e.GetTime() == nil {
		e.Time = timestamppb.Now()
	}
	if err := w.stages.advance(stage); err != nil {
		return err
	}
	if err := w.events.Append(ctx, e); err != nil {
		return err
	}
	w.Observe(ctx, e)
	return nil
}

// EventOrigin identifies where an event comes from: the step, the attempt, the agent and the instance.
type EventOrigin struct {
	Number   int
	Attempt  int
	Agent    string
	Instance string
}

// WriteStep publishes an event of a step. The trace assigns its sequence, even when a worker has sent the
// event.
func (w *Writer) WriteStep(ctx context.Context, at EventOrigin, e *troupev1.Event) error {
	e.Sequence = 0
	e.Step, e.Attempt, e.Agent, e.InstanceId = int32(at.Number), int32(at.Attempt), at.Agent, at.Instance
	return w.Write(ctx, troupev1.Stage_STAGE_EXECUTE, e)
}

// Warn publishes a warning about the turn.
func (w *Writer) Warn(ctx context.Context, reason, message string) error {
	return w.Write(ctx, troupev1.Stage_STAGE_ROUTE, &troupev1.Event{Payload: &troupev1.Event_Warning{Warning: &troupev1.Warning{
		Reason: reason, Message: message,
	}}})
}

// WriteStart publishes the first event of the trace. The event quotes the beginning of the user's text and
// answers, without sealed credentials. ready is how many instances could take a step.
func (w *Writer) WriteStart(ctx context.Context, ready int) error {
	req, turn := w.turn.Request, w.turn.Turn
	answers := wire.AnswersToProto(turn.Answers)
	for _, a := range answers {
		a.Text, a.Sealed = conversation.Excerpt(a.GetText(), MaxText), nil
	}
	return w.Write(ctx, troupev1.Stage_STAGE_INITIALIZE, &troupev1.Event{
		Payload: &troupev1.Event_TurnStarted{TurnStarted: &troupev1.TurnStarted{
			Text: conversation.Excerpt(req.Text, MaxText), RequestId: req.RequestID, TurnId: turn.ID, Target: w.turn.Target,
			InstancesReady: int32(ready), ContinuesTurnId: turn.Continues, Answers: answers, Parent: req.Parent,
			Profile: req.ProfileOrDefault(), Attachments: blobsWithoutBytes(req.Files), From: req.Source.Proto(),
		}},
	})
}

// blobsWithoutBytes returns files in the form that events have: without their bytes.
func blobsWithoutBytes(files []conversation.Attachment) []*troupev1.Blob {
	var all []*troupev1.Blob
	for _, f := range conversation.AttachmentsWithoutData(files) {
		all = append(all, wire.BlobToProto(f))
	}
	return all
}

// WriteDecision publishes which agent works next on which step, and how long the decision took. It skips choices
// by strategy, which WriteChoice publishes.
func (w *Writer) WriteDecision(ctx context.Context, task cursor.Task, took time.Duration) error {
	if n := task.Decision.ChoiceNumber; n > 0 && w.Choice(n) != nil {
		return nil
	}
	task.Decision.Duration = took
	decision := task.Decision.Proto()
	decision.Number, decision.Task = int32(task.Number), conversation.Excerpt(task.Decision.Step.Task, MaxText)
	return w.WriteChoice(ctx, decision)
}

// WriteChoice publishes a choice by strategy. Call AwaitChoices to wait until it is stored.
func (w *Writer) WriteChoice(ctx context.Context, choice *troupev1.RoutingDecision) error {
	return w.Write(ctx, troupev1.Stage_STAGE_ROUTE, &troupev1.Event{Payload: &troupev1.Event_RoutingDecision{RoutingDecision: choice}})
}

// RecordChoice records a choice of the turn in the writer, so that the choice is not made again.
func (w *Writer) RecordChoice(number int, choice *troupev1.RoutingDecision) {
	w.choicePending = true
	w.prior.published.Choices[number] = choice
}

// Choice returns the choice with the given number that was published on this trace (nil when there is none).
func (w *Writer) Choice(number int) *troupev1.RoutingDecision {
	return w.prior.published.Choices[number]
}

// AwaitChoices waits until the published choices are stored. Only the trace has them, and the next steps depend on
// them. Each round with a choice thus waits for one additional write.
func (w *Writer) AwaitChoices(work context.Context) error {
	if !w.choicePending {
		return nil
	}
	return w.AwaitStored(work)
}

// AwaitStored waits until all published events are stored.
func (w *Writer) AwaitStored(work context.Context) error {
	err := w.events.AwaitStored(work)
	w.choicePending = w.choicePending && err != nil
	return err
}
