package turn

import (
	"context"
	"fmt"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"

	researchassistant "github.com/troupe-dev/troupe/agents/research-assistant"
	"github.com/troupe-dev/troupe/internal/grpcfailure"
	"github.com/troupe-dev/troupe/internal/lifecycle"
	"github.com/troupe-dev/troupe/internal/process"
	"github.com/troupe-dev/troupe/internal/redisconn"
	"github.com/troupe-dev/troupe/internal/registry"
	"github.com/troupe-dev/troupe/internal/rpc"
	"github.com/troupe-dev/troupe/internal/telemetry"
	"github.com/troupe-dev/troupe/internal/wire"
	"github.com/troupe-dev/troupe/pkg/conversation"
	troupev1 "github.com/troupe-dev/troupe/pkg/gen/troupe/v1"
	"github.com/troupe-dev/troupe/pkg/memory"
	"github.com/troupe-dev/troupe/pkg/memory/inmem"
	"github.com/troupe-dev/troupe/pkg/session"
	gate "github.com/troupe-dev/troupe/services/orchestrator/internal/admission"
	"github.com/troupe-dev/troupe/services/orchestrator/internal/dispatch"
	"github.com/troupe-dev/troupe/services/orchestrator/internal/dispatch/connection"
	"github.com/troupe-dev/troupe/services/orchestrator/internal/routing/instances"
	"github.com/troupe-dev/troupe/services/orchestrator/internal/trace"
	"github.com/troupe-dev/troupe/services/orchestrator/internal/trace/redistrace"
	"github.com/troupe-dev/troupe/services/orchestrator/internal/turn/decide"
	"github.com/troupe-dev/troupe/services/orchestrator/internal/turn/lease"
	"github.com/troupe-dev/troupe/services/orchestrator/internal/turn/request"
	"github.com/troupe-dev/troupe/services/orchestrator/internal/workflow"
	"github.com/troupe-dev/troupe/test/parallel"
)

func TestMain(m *testing.M) {
	parallel.SetMinimum(16)
	goleak.VerifyTestMain(m)
}

// patience is the timeout of every wait in these tests. It is far longer than any wait should take.
const patience = 30 * time.Second

// retention is how long these tests keep traces. The memory service keeps turns longer.
const retention = time.Hour

// rig is a mesh in which one server with scripted steps hosts all workers.
type rig struct {
	*scriptedWorker
	redis        *miniredis.Miniredis // of the traces
	memory       memory.Store
	clockAhead   atomic.Int64 // of the clock of the memory store
	workflows    *workflow.Set
	cache        *instances.Cache
	pool         *connection.Pool
	routeTimeout time.Duration // how long a step waits for an instance
	limits       gate.Config   // admission limits of the runners (none when zero)
}

func newRig(t *testing.T) *rig {
	t.Helper()
	t.Parallel() // each test has its own rig
	r := &rig{redis: miniredis.RunT(t), routeTimeout: 5 * time.Second}
	r.memory = inmem.New(inmem.Config{Clock: func() time.Time { return time.Now().Add(time.Duration(r.clockAhead.Load())) }})
	var err error
	r.workflows, err = workflow.Load(researchassistant.FS, "")
	require.NoError(t, err)

	r.scriptedWorker = startScriptedWorker(t, r.memory)
	r.cache = instances.New(zap.NewNop(), func(bool, map[string]bool) {})
	var instances []registry.Instance
	for _, agent := range []string{"coordinator", "clarification", "research", "synthesis"} {
		instances = append(instances, registry.Instance{ID: agent + "-1", Agent: agent, Address: r.address, State: lifecycle.Ready, Capacity: 16})
	}
	r.cache.Apply(registry.Update{List: &instances})
	r.pool = connection.NewPool(telemetry.Discard(), rpc.Dial)
	t.Cleanup(r.pool.Close)
	return r
}

// addInstances adds more instances of an agent, numbered from 2.
func (r *rig) addInstances(agent string, more int) {
	for n := range more {
		in := registry.Instance{ID: fmt.Sprintf("%s-%d", agent, n+2), Agent: agent, Address: r.address, State: lifecycle.Ready, Capacity: 16}
		r.cache.Apply(registry.Update{Put: &in})
	}
}

// expireLeases advances the clock of the memory store past the end of every lease.
func (r *rig) expireLeases() { r.clockAhead.Add(int64(time.Hour)) }

// newRunner returns a replica of the orchestrator, which is closed when the test ends.
func (r *rig) newRunner(t *testing.T, owner string) *Runner {
	t.Helper()
	store, err := redistrace.New(redisconn.Config{URL: "redis://" + r.redis.Addr()}, retention)
	require.NoError(t, err)
	limits, err := gate.New(r.limits)
	require.NoError(t, err)
	runner, err := New(Config{
		Permits: limits, Owner: owner, Timeout: time.Minute, Memory: r.memory, Traces: trace.New(store, zap.NewNop()),
		Instances: r.cache, Dispatcher: dispatch.New(r.cache, r.pool, r.routeTimeout), Workflows: r.workflows, Telemetry: telemetry.Discard(),
	})
	require.NoError(t, err)
	t.Cleanup(func() {
		runner.Close(t.Context()) // the context has ended, so Close hands running turns over
		require.NoError(t, store.Close())
	})
	return runner
}

// replaceRunner replaces a runner by one with a changed configuration. The runner must drive no turn yet.
func replaceRunner(t *testing.T, r *Runner, change func(*Config)) {
	t.Helper()
	cfg := r.cfg
	change(&cfg)
	built, err := New(cfg)
	require.NoError(t, err)
	*r = *built
}

// logTo makes a runner log to a core. The runner must drive no turn yet.
func logTo(t *testing.T, r *Runner, core zapcore.Core) {
	t.Helper()
	replaceRunner(t, r, func(c *Config) {
		logged := *c.Telemetry
		logged.Log = zap.New(core)
		c.Telemetry = &logged
	})
}

// newBegin returns the Begin that an orchestrator sends to the memory service for a request.
func (r *rig) newBegin(req request.Request) memory.Begin {
	begin := memory.Begin{
		Ref: req.Ref, User: req.User, TurnID: req.TurnID(), TraceID: decide.NewTraceID(), Fingerprint: req.Fingerprint(),
		LeaseTTL: lease.Duration, TakeoverGrace: lease.TakeoverGrace, Window: r.workflows.All()[0].HistoryWindow,
	}
	if decide.KindOf(req) == decide.Text {
		begin.Message = conversation.User(req.Text)
		begin.Message.Attachments = req.Files
	}
	return begin
}

// runInBackground runs a part of a process until the test ends.
func runInBackground(t *testing.T, p process.Part) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	ready, ended := make(chan struct{}), make(chan error, 1)
	go func() { ended <- p.Run(ctx, func() { close(ready) }) }()
	receive(t, ready)
	t.Cleanup(func() { cancel(); require.NoError(t, <-ended) })
}

func receive[T any](t *testing.T, from <-chan T) (v T) {
	t.Helper()
	timer := time.NewTimer(patience)
	defer timer.Stop()
	select {
	case v = <-from:
	case <-timer.C:
		require.FailNow(t, "waited in vain")
	}
	return v
}

// scriptedWorker hosts all agents and runs the test's script for each step.
type scriptedWorker struct {
	troupev1.UnimplementedAgentServiceServer
	memory  memory.Store
	address string
	conns   *closableConns

	starts atomic.Int32 // calls of Startup

	tenant func(sessionID string) string // returns the tenant of a session (nil means the default)

	mu       sync.Mutex
	scripts  map[string]func(*scriptedStep) error // by agent
	requests []*troupev1.ExecuteStepRequest
}

// startScriptedWorker starts the worker. Without a script, the coordinator hands off to research, and the other
// agents answer with their names.
func startScriptedWorker(t *testing.T, store memory.Store) *scriptedWorker {
	t.Helper()
	lis, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	w := &scriptedWorker{memory: store, address: lis.Addr().String(), conns: &closableConns{Listener: lis}, scripts: map[string]func(*scriptedStep) error{}}
	w.setScript("coordinator", func(s *scriptedStep) error {
		return s.commit(func(r *troupev1.StepResult) { r.NextAgent = "research" })
	})
	server, err := rpc.NewServer(telemetry.Discard(), rpc.Config{Internal: true})
	require.NoError(t, err)
	troupev1.RegisterAgentServiceServer(server, w)
	troupev1.RegisterLifecycleServiceServer(server, startCounter{starts: &w.starts})
	runInBackground(t, server.ProcessPart(w.conns, 0))
	return w
}

// startCounter is a lifecycle service that counts the calls of Startup.
type startCounter struct {
	troupev1.UnimplementedLifecycleServiceServer
	starts *atomic.Int32
}

func (s startCounter) Startup(context.Context, *troupev1.StartupRequest) (*troupev1.StartupResponse, error) {
	s.starts.Add(1)
	return &troupev1.StartupResponse{Status: &troupev1.InstanceStatus{State: troupev1.InstanceState_INSTANCE_STATE_READY}}, nil
}

// setScript sets the script that the steps of an agent run from now on.
func (w *scriptedWorker) setScript(agent string, script func(*scriptedStep) error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.scripts[agent] = script
}

// askedAgents returns the agents of all steps received so far.
func (w *scriptedWorker) askedAgents() (agents []string) {
	for _, req := range w.receivedSteps() {
		agents = append(agents, req.GetAgent())
	}
	return agents
}

func (w *scriptedWorker) receivedSteps() []*troupev1.ExecuteStepRequest {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.requests
}

// ExecuteStep implements troupev1.AgentServiceServer.
func (w *scriptedWorker) ExecuteStep(req *troupev1.ExecuteStepRequest, stream troupev1.AgentService_ExecuteStepServer) error {
	w.mu.Lock()
	w.requests = append(w.requests, req)
	script := w.scripts[req.GetAgent()]
	w.mu.Unlock()
	if err := stream.SendHeader(nil); err != nil {
		return err
	}
	s := &scriptedStep{worker: w, req: req, stream: stream}
	if script == nil {
		return s.commitAnswer("I am " + req.GetAgent() + ".")
	}
	return script(s)
}

// scriptedStep is a step while its script runs.
type scriptedStep struct {
	worker *scriptedWorker
	req    *troupev1.ExecuteStepRequest
	stream troupev1.AgentService_ExecuteStepServer
}

func (s *scriptedStep) sendEvent(e *troupev1.Event) error {
	return s.stream.Send(&troupev1.ExecuteStepResponse{Item: &troupev1.ExecuteStepResponse_Event{Event: e}})
}

func (s *scriptedStep) sendResult(r *troupev1.StepResult) error {
	r.Step, r.Agent = s.req.GetStep(), s.req.GetAgent()
	return s.stream.Send(&troupev1.ExecuteStepResponse{Item: &troupev1.ExecuteStepResponse_Result{Result: r}})
}

// commitAnswer answers as a real worker does: it streams the text, commits, and returns the result.
func (s *scriptedStep) commitAnswer(text string) error {
	if err := s.sendEvent(&troupev1.Event{Payload: &troupev1.Event_TextDelta{TextDelta: &troupev1.TextDelta{Text: text}}}); err != nil {
		return err
	}
	return s.commit(func(r *troupev1.StepResult) { r.Text = text })
}

// commit commits a result and sends it to the orchestrator.
func (s *scriptedStep) commit(fill func(*troupev1.StepResult)) error {
	r, err := s.storeResult(fill)
	if err != nil {
		r = &troupev1.StepResult{Failure: grpcfailure.ToProto(err)}
	}
	return s.sendResult(r)
}

// storeResult commits a result.
func (s *scriptedStep) storeResult(fill func(*troupev1.StepResult)) (*troupev1.StepResult, error) {
	r := &troupev1.StepResult{Step: s.req.GetStep(), Agent: s.req.GetAgent(), Usage: &troupev1.Usage{ModelCalls: 1}}
	fill(r)
	c := memory.Commit{
		Ref: session.Ref{Session: s.req.GetSessionId()}, TurnID: s.req.GetTurnId(), Epoch: s.req.GetEpoch(),
		Base: s.req.GetBaseSequence(), Result: wire.ResultFromProto(r),
	}
	if s.worker.tenant != nil {
		c.Ref.Tenant = s.worker.tenant(c.Ref.Session)
	}
	if r.GetText() != "" && !s.req.GetSilent() {
		c.Messages = []conversation.Message{conversation.Assistant(r.GetAgent(), r.GetText())}
	}
	switch {
	case r.GetInputRequired():
		c.Outcome = session.InputOutcome(c.Result)
	case s.req.GetLast() || r.GetStopped():
		c.Outcome = session.OutcomeCompleted
	}
	var err error
	r.Sequence, err = s.worker.memory.CommitStep(context.WithoutCancel(s.stream.Context()), c)
	return r, err
}

// cutConnections closes the connections of the worker, as happens when a worker is killed.
func (s *scriptedStep) cutConnections() error {
	s.worker.conns.closeAll()
	<-s.stream.Context().Done()
	return s.stream.Context().Err()
}

// closableConns is a listener that can close the connections that it accepted.
type closableConns struct {
	net.Listener
	mu   sync.Mutex
	open []net.Conn
}

func (c *closableConns) Accept() (net.Conn, error) {
	conn, err := c.Listener.Accept()
	c.mu.Lock()
	defer c.mu.Unlock()
	if err == nil {
		c.open = append(c.open, conn)
	}
	return conn, err
}

func (c *closableConns) closeAll() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, conn := range c.open {
		_ = conn.Close()
	}
	c.open = nil
}

// textRequest returns a request with a text in the given session.
func textRequest(sessionID, requestID string) request.Request {
	return request.Request{Ref: session.Ref{Session: sessionID}, RequestID: requestID, Text: "What may an agent write?"}
}

// runToEnd runs a request to the end of its trace and checks what holds for every trace. It calls first after the
// first event. A watcher that attaches in first sees the text deltas too.
func runToEnd(t *testing.T, r *Runner, req request.Request, first ...func()) []*troupev1.Event {
	t.Helper()
	var all []*troupev1.Event
	var last uint64
	for e, err := range r.Orchestrate(t.Context(), req) {
		require.NoError(t, err)
		require.Equal(t, req.Session, e.GetSessionId())
		for _, tell := range first {
			tell()
		}
		first = nil
		if e.GetTextDelta() == nil && e.GetToolProgress() == nil {
			require.Equal(t, last+1, e.GetSequence(), "%v", e)
			last++
		}
		all = append(all, e)
	}
	for i, e := range all {
		require.Equal(t, all[0].GetTraceId(), e.GetTraceId())
		require.Equal(t, i == len(all)-1, e.GetTurnResult() != nil, "the result is the last event")
	}
	return all
}

func turnResult(events []*troupev1.Event) *troupev1.TurnResult {
	return events[len(events)-1].GetTurnResult()
}

// eventSummary returns a short line for each event: its stage, its kind and its agent.
func eventSummary(events []*troupev1.Event) (lines []string) {
	for _, e := range events {
		line := strings.ToLower(strings.TrimPrefix(e.GetStage().String(), "STAGE_"))
		payload := e.ProtoReflect()
		if field := payload.WhichOneof(payload.Descriptor().Oneofs().ByName("payload")); field != nil {
			line += " " + string(field.Name())
		}
		if e.GetAgent() != "" {
			line += " " + e.GetAgent()
		}
		if d := e.GetRoutingDecision(); d != nil {
			line += " " + d.GetTarget()
		}
		lines = append(lines, line)
	}
	return lines
}

// state of a session.
func (r *rig) state(t *testing.T, sessionID string) session.State {
	t.Helper()
	s, err := r.memory.GetSession(t.Context(), session.Ref{Session: sessionID})
	require.NoError(t, err)
	return s.State
}
