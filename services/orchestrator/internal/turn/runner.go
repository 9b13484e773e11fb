// Package turn drives turns: the stage machine from INITIALIZE to the turn result. A turn
// runs on its own, under its own deadline, whoever watches it.
//
// Durable writes of a turn of n steps, in sequence: BeginTurn, one commit per step (by its
// worker), the last event. All other events are written beside them.
package turn

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"iter"
	"slices"
	"sync"
	"time"

	"github.com/google/uuid"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"
	"go.uber.org/zap"
	"golang.org/x/sync/singleflight"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/troupe-dev/troupe/pkg/conversation"
	"github.com/troupe-dev/troupe/pkg/failure"
	troupev1 "github.com/troupe-dev/troupe/pkg/gen/troupe/v1"
	"github.com/troupe-dev/troupe/pkg/memory"
	"github.com/troupe-dev/troupe/pkg/session"
	"github.com/troupe-dev/troupe/pkg/telemetry"
	"github.com/troupe-dev/troupe/services/orchestrator/internal/dispatch"
	"github.com/troupe-dev/troupe/services/orchestrator/internal/routing"
	"github.com/troupe-dev/troupe/services/orchestrator/internal/trace"
	"github.com/troupe-dev/troupe/services/orchestrator/internal/workflow"
)

// Times of a turn.
const (
	beginTime = 10 * time.Second // BeginTurn, repeats included
	closeTime = 30 * time.Second // to close a turn and store its last event
)

// Config is what a runner works with.
type Config struct {
	Owner      string // this replica, as trace records name it
	Timeout    time.Duration
	Memory     memory.Store
	Traces     *trace.Traces
	Roster     *routing.Roster
	Dispatcher *dispatch.Dispatcher
	Workflows  *workflow.Set
	Telemetry  *telemetry.Telemetry
}

// Runner begins turns and drives them. Safe for concurrent use.
type Runner struct {
	Config
	log      *zap.Logger
	turns    metric.Int64Counter
	duration metric.Float64Histogram
	begins   singleflight.Group // of one turn id at a time, so that a repeat finds the log
	running  sync.WaitGroup

	mu      sync.Mutex
	closed  bool
	stopped chan struct{} // closed by stop: running turns shall end
	stop    func()
}

// New returns a runner. The caller closes it.
func New(cfg Config) (*Runner, error) {
	meter := cfg.Telemetry.Metrics.Meter("troupe/orchestrator")
	turns, err := meter.Int64Counter("troupe.turns", metric.WithDescription("Turns that ended, by outcome."))
	if err != nil {
		return nil, err
	}
	duration, err := meter.Float64Histogram("troupe.turn.duration", metric.WithUnit("s"), metric.WithDescription("From admission to result."))
	if err != nil {
		return nil, err
	}
	stopped := make(chan struct{})
	return &Runner{
		Config: cfg, log: cfg.Telemetry.Log, turns: turns, duration: duration,
		stopped: stopped, stop: sync.OnceFunc(func() { close(stopped) }),
	}, nil
}

// Request is one user input.
type Request struct {
	Tenant    string
	Session   string
	RequestID string
	Text      string
	Target    string        // workflow or agent; empty: the default workflow
	Timeout   time.Duration // 0: the runner's
}

func (r Request) ref() session.Ref { return session.Ref{Tenant: r.Tenant, Session: r.Session} }

// fingerprint tells whether two requests with one id ask the same.
func (r Request) fingerprint() string {
	sum := sha256.Sum256([]byte(r.Target + "\x00" + r.Text))
	return hex.EncodeToString(sum[:16])
}

// Orchestrate begins the turn, or finds it, and yields the events of its trace from the
// first on. An error as the first item means that nothing was admitted; later it means
// that the stream broke off. When the consumer stops, the turn goes on.
func (r *Runner) Orchestrate(ctx context.Context, req Request) iter.Seq2[*troupev1.Event, error] {
	return func(yield func(*troupev1.Event, error) bool) {
		begun, err := r.begin(ctx, req)
		if err != nil {
			yield(nil, err)
			return
		}
		first := true
		for e, err := range r.Traces.Watch(ctx, trace.Ref{Tenant: req.Tenant, Trace: begun.Turn.Trace}, 0) {
			if first && failure.Is(err, failure.NotFound) {
				r.remember(req, begun, yield)
				return
			}
			first = false
			if !yield(e, err) {
				return
			}
		}
	}
}

// remember answers for a trace that is no longer kept, or was never stored: from the turn
// record, which is kept longer (guarantees F13).
func (r *Runner) remember(req Request, begun memory.Begun, yield func(*troupev1.Event, error) bool) {
	if begun.Found != memory.FoundClosed {
		yield(nil, failure.Newf(failure.TraceOrphaned, "turn.Orchestrate",
			"the turn's orchestrator went away before it stored an event; the same request takes it over in %s", begun.LeaseLeft.Round(time.Second)).
			With("retry_after", begun.LeaseLeft.String()))
		return
	}
	for i, e := range []*troupev1.Event{started(req, begun.Turn, 0), ended(begun.Turn)} {
		e.Sequence, e.TraceId, e.SessionId, e.Turn = uint64(i+1), begun.Turn.Trace, req.Session, int32(begun.Turn.Number)
		if !yield(e, nil) {
			return
		}
	}
}

// begin opens the turn and sets it going, or finds it. Concurrent calls for one turn join.
func (r *Runner) begin(ctx context.Context, req Request) (memory.Begun, error) {
	flow, target, err := r.resolve(req.Target)
	if err != nil {
		return memory.Begun{}, err
	}
	req.Target = target
	turnID := session.TurnID(req.ref(), req.RequestID)
	flight := r.begins.DoChan(turnID+req.fingerprint(), func() (any, error) {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), beginTime)
		defer cancel()
		return r.admit(ctx, req, flow, turnID)
	})
	select {
	case result := <-flight:
		begun, _ := result.Val.(memory.Begun)
		return begun, result.Err
	case <-ctx.Done():
		return memory.Begun{}, ctx.Err()
	}
}

func (r *Runner) admit(ctx context.Context, req Request, flow *workflow.Workflow, turnID string) (memory.Begun, error) {
	if !r.enter() {
		return memory.Begun{}, failure.New(failure.SystemNetwork, "turn.Orchestrate", "this orchestrator is stopping; send the request again")
	}
	timeout := req.Timeout
	if timeout == 0 {
		timeout = r.Timeout
	}
	begin := memory.Begin{
		Ref: req.ref(), TurnID: turnID, TraceID: traceID(), Fingerprint: req.fingerprint(),
		Message: conversation.User(req.Text), Lease: timeout + closeTime, Window: flow.Window,
	}
	begun, err := failure.Retry(ctx, func(ctx context.Context) (memory.Begun, error) { return r.Memory.BeginTurn(ctx, begin) })
	if err != nil || begun.Found != memory.FoundNone {
		r.running.Done()
		return begun, err
	}
	t := &turn{
		Runner: r, req: req, flow: flow, turn: begun.Turn, history: asBegun(begun),
		base: begun.Turn.Sequence, known: begun.Turn.Steps, began: time.Now(),
	}
	record := &troupev1.Trace{
		TraceId: begun.Turn.Trace, SessionId: req.Session, TurnId: turnID, Turn: int32(begun.Turn.Number),
		RequestId: req.RequestID, Target: req.Target, Text: cut(req.Text), Started: timestamppb.New(t.began), Owner: r.Owner,
	}
	if t.events, err = r.Traces.Open(ctx, req.Tenant, record, begun.Turn.Attempt > 1); err != nil {
		r.running.Done()
		return begun, fmt.Errorf("open trace %s: %w", begun.Turn.Trace, err)
	}
	go func() { defer r.running.Done(); t.run(context.WithoutCancel(ctx), timeout) }()
	return begun, nil
}

// asBegun is the history as the turn began. What steps of a turn that is taken over have
// said since comes back with their results.
func asBegun(begun memory.Begun) []conversation.Message {
	return slices.DeleteFunc(begun.History, func(m conversation.Message) bool {
		return m.Turn == begun.Turn.Number && m.Role != conversation.RoleUser
	})
}

// resolve finds what a target names.
func (r *Runner) resolve(target string) (*workflow.Workflow, string, error) {
	if flow, ok := r.Workflows.Find(target); ok {
		return flow, flow.Name, nil
	}
	if target != "" && (r.Roster.Knows(target) || r.Workflows.Names(target)) {
		return workflow.Single(target), target, nil
	}
	if target == "" {
		return nil, "", failure.New(failure.NotFound, "turn.Orchestrate", "target: no workflow is declared here; name an agent")
	}
	return nil, "", failure.Newf(failure.NotFound, "turn.Orchestrate", "target: no workflow or agent is called %q; see ListAgents", target).With("target", target)
}

// enter counts a turn in, unless the runner is closed.
func (r *Runner) enter() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed {
		return false
	}
	r.running.Add(1)
	return true
}

// Close takes no more turns, lets those that run end until ctx does, and then fails the
// rest. It returns when none runs. It may be called again.
func (r *Runner) Close(ctx context.Context) {
	r.mu.Lock()
	r.closed = true
	r.mu.Unlock()
	idle := make(chan struct{})
	go func() { defer close(idle); r.running.Wait() }()
	select {
	case <-idle:
	case <-ctx.Done():
		r.stop()
		<-idle
	}
}

func (r *Runner) count(ctx context.Context, outcome session.Outcome, d time.Duration) {
	by := metric.WithAttributes(attribute.String("outcome", string(outcome)))
	r.turns.Add(ctx, 1, by)
	r.duration.Record(ctx, d.Seconds(), by)
}

// traceID is a new W3C trace id.
func traceID() string {
	id := uuid.New()
	return hex.EncodeToString(id[:])
}

// maxGoal is how much of the user's text records and first events quote (OC-30).
const maxGoal = 200

func cut(text string) string {
	runes := []rune(text)
	if len(runes) <= maxGoal {
		return text
	}
	return string(runes[:maxGoal-1]) + "…"
}
