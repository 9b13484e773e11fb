package replay

import (
	"context"
	"net"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/stretchr/testify/require"
	"go.uber.org/zap"
	"google.golang.org/protobuf/proto"

	"github.com/troupe-dev/troupe/internal/lifecycle"
	"github.com/troupe-dev/troupe/internal/redisconn"
	"github.com/troupe-dev/troupe/internal/registry"
	"github.com/troupe-dev/troupe/internal/rpc"
	"github.com/troupe-dev/troupe/internal/telemetry"
	"github.com/troupe-dev/troupe/pkg/conversation"
	"github.com/troupe-dev/troupe/pkg/execution"
	"github.com/troupe-dev/troupe/pkg/failure"
	troupev1 "github.com/troupe-dev/troupe/pkg/gen/troupe/v1"
	"github.com/troupe-dev/troupe/pkg/memory"
	"github.com/troupe-dev/troupe/pkg/session"
	"github.com/troupe-dev/troupe/services/orchestrator/internal/dispatch/connection"
	"github.com/troupe-dev/troupe/services/orchestrator/internal/routing/instances"
	"github.com/troupe-dev/troupe/services/orchestrator/internal/trace"
	"github.com/troupe-dev/troupe/services/orchestrator/internal/trace/redistrace"
)

var oldTrace = trace.Ref{Tenant: ref.Tenant, Trace: "0af7651916cd43dd8448eb211c80319c"}

// identicalWorker is a worker that reports no difference for any replayed step.
type identicalWorker struct {
	troupev1.UnimplementedAgentServiceServer
}

func (identicalWorker) ReplayStep(_ context.Context, req *troupev1.ReplayStepRequest) (*troupev1.ReplayStepResponse, error) {
	return &troupev1.ReplayStepResponse{Replay: &troupev1.StepReplay{Step: req.GetStep().GetStep(), Agent: req.GetStep().GetAgent()}}, nil
}

// serveWorker serves a worker until the test ends and returns its address.
func serveWorker(t *testing.T) (address string) {
	t.Helper()
	server, err := rpc.NewServer(telemetry.Discard(), rpc.Config{Internal: true})
	require.NoError(t, err)
	troupev1.RegisterAgentServiceServer(server, identicalWorker{})
	lis, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	ended := make(chan error, 1)
	go func() { ended <- server.ProcessPart(lis, 0).Run(ctx, func() {}) }()
	t.Cleanup(func() { cancel(); require.NoError(t, <-ended) })
	return lis.Addr().String()
}

// meshWithTrace returns a mesh with the recorded trace of two steps: research, then synthesis.
func meshWithTrace(t *testing.T) *Replayer {
	t.Helper()
	r, was := researchTurn(t)
	address := serveWorker(t)
	r.Pool = connection.NewPool(telemetry.Discard(), rpc.Dial)
	t.Cleanup(r.Pool.Close)
	r.Instances = instances.New(zap.NewNop(), func(bool, map[string]bool) {})
	instance := func(agent, id string, state lifecycle.State) registry.Instance {
		return registry.Instance{ID: id, Agent: agent, Address: address, State: state, Capacity: 1}
	}
	r.Instances.Apply(registry.Update{List: &[]registry.Instance{
		instance("research", "r1", lifecycle.Ready), instance("research", "r2", lifecycle.Ready), instance("research", "r3", lifecycle.Paused),
		instance("synthesis", "s1", lifecycle.Ready), instance("coordinator", "c1", lifecycle.Ready),
	}})

	store := r.Memory.(memory.Store)
	begun, err := store.BeginTurn(t.Context(), memory.Begin{
		Ref: ref, TurnID: "t1", TraceID: oldTrace.Trace, Fingerprint: "f", Message: conversation.User("What may an agent write?"),
		LeaseTTL: time.Minute, Window: 10,
	})
	require.NoError(t, err)
	var events []*troupev1.Event
	outcomes := []session.Outcome{session.OutcomeOpen, session.OutcomeCompleted}
	for i, number := range []int{2, 3} {
		result := was.results[number]
		encoded, err := proto.Marshal(&troupev1.ExecuteStepRequest{
			TraceId: oldTrace.Trace, SessionId: ref.Session, TurnId: "t1", Turn: 1, Step: result.GetStep(), Agent: result.GetAgent(),
			BaseSequence: int64(i + 1), Goal: "Find out.", Task: "Find out.", History: []*troupev1.Message{{Sequence: 1, Role: troupev1.Role_ROLE_USER}},
		})
		require.NoError(t, err)
		_, err = store.CommitStep(t.Context(), memory.Commit{
			Ref: ref, TurnID: "t1", Epoch: begun.Turn.Epoch, Base: int64(i + 1), Outcome: outcomes[i],
			Result:   execution.Result{Step: number, Agent: result.GetAgent()},
			Messages: []conversation.Message{conversation.Assistant(result.GetAgent(), result.GetText())},
			Journal:  []execution.Entry{{Phase: execution.Intent, StepInput: encoded}},
		})
		require.NoError(t, err)
		events = append(events, &troupev1.Event{
			Sequence: uint64(i + 1), Step: result.GetStep(), Agent: result.GetAgent(),
			Payload: &troupev1.Event_StepFinished{StepFinished: &troupev1.StepFinished{Result: result}},
		})
	}
	traces, err := redistrace.New(redisconn.Config{URL: "redis://" + miniredis.RunT(t).Addr()}, time.Hour)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, traces.Close()) })
	epoch, _, err := traces.Claim(t.Context(), trace.Claim{Tenant: oldTrace.Tenant, Record: &troupev1.Trace{
		TraceId: oldTrace.Trace, SessionId: ref.Session,
		TurnId: "t1", Turn: 1,
	}})
	require.NoError(t, err)
	require.NoError(t, traces.Append(t.Context(), oldTrace, epoch, 0, events, was.record.GetResult()))
	r.Traces = traces
	return r
}

func TestReplayer_RunsTheStepsOfItsAgentOnTheNamedInstance(t *testing.T) {
	r := meshWithTrace(t)
	for named, want := range map[string][]string{"": {"r1", "s1"}, "r2": {"r2", "s1"}, "s1": {"r1", "s1"}} {
		done, err := r.ReplayTrace(t.Context(), Request{Ref: oldTrace, Instance: named})
		require.NoError(t, err)
		var ran []string
		for _, s := range done.GetSteps() {
			ran = append(ran, s.GetInstanceId())
		}
		require.Equal(t, want, ran, "named: %q", named)
	}
}

// When the request names an instance, no other instance replays the steps of that instance's agent.
func TestReplayer_RunsStepsOnlyAtTheNamedInstance(t *testing.T) {
	r := meshWithTrace(t)
	for name, test := range map[string]struct {
		req  Request
		mode failure.Mode
		want string
	}{
		"unknown": {
			req: Request{Instance: "r9"}, mode: failure.NotFound,
			want: `instance_id: no agent of these steps (research, synthesis) has an instance "r9"; troupe get instances lists those there are`,
		},
		"of an agent without a step": {
			req: Request{Instance: "c1"}, mode: failure.NotFound,
			want: `instance_id: no agent of these steps (research, synthesis) has an instance "c1"; troupe get instances lists those there are`,
		},
		"of the agent of another step": {
			req: Request{Step: 3, Instance: "r1"}, mode: failure.NotFound,
			want: `instance_id: no agent of these steps (synthesis) has an instance "r1"; troupe get instances lists those there are`,
		},
		"paused": {req: Request{Instance: "r3"}, mode: failure.NoWorker, want: "instance r3 of agent research is not ready"},
	} {
		t.Run(name, func(t *testing.T) {
			test.req.Ref = oldTrace
			_, err := r.ReplayTrace(t.Context(), test.req)
			require.True(t, failure.Is(err, test.mode), "%v", err)
			require.Equal(t, test.want, failure.PlainMessage(err))
		})
	}
}
