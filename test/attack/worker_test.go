package attack

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"
	"google.golang.org/protobuf/encoding/protowire"

	"github.com/troupe-dev/troupe/internal/grpcfailure"
	"github.com/troupe-dev/troupe/internal/identity"
	"github.com/troupe-dev/troupe/internal/turnctx"
	"github.com/troupe-dev/troupe/pkg/failure"
	troupev1 "github.com/troupe-dev/troupe/pkg/gen/troupe/v1"
	"github.com/troupe-dev/troupe/test/rig"
	"github.com/troupe-dev/troupe/test/rig/gate"
)

// rogueWorker is a worker that does not use the SDK. Each test decides how it handles a step.
type rogueWorker struct {
	troupev1.UnimplementedAgentServiceServer
	troupev1.UnimplementedLifecycleServiceServer

	handle func(*troupev1.ExecuteStepRequest, troupev1.AgentService_ExecuteStepServer) error
}

// ExecuteStep implements troupev1.AgentServiceServer.
func (r *rogueWorker) ExecuteStep(req *troupev1.ExecuteStepRequest, s troupev1.AgentService_ExecuteStepServer) error {
	return errors.Join(s.SendHeader(nil), r.handle(req, s))
}

// replaceWorker replaces the worker of the agent research with a rogue worker.
func (r *rogueWorker) replaceWorker(t *testing.T, m *rig.Mesh) {
	t.Helper()
	const agent = "research"
	m.Stop(rig.Worker(agent))
	lis, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	server := grpc.NewServer(grpc.Creds(m.Credentials.Identity(identity.ID{Role: identity.Worker, Name: agent}).ServerCredentials()))
	troupev1.RegisterAgentServiceServer(server, r)
	troupev1.RegisterLifecycleServiceServer(server, r)
	var serving sync.WaitGroup
	serving.Go(func() { _ = server.Serve(lis) })
	t.Cleanup(func() { server.Stop(); serving.Wait() })
	etcd := m.Stores.Etcd.ClientAs("worker/" + agent)
	granted, err := etcd.Grant(t.Context(), 600)
	require.NoError(t, err)
	_, err = etcd.Put(t.Context(), "/troupe/v1/reg/"+agent+"/rogue",
		fmt.Sprintf(`{"address":%q,"state":"INSTANCE_STATE_READY","capacity":4}`, lis.Addr()), clientv3.WithLease(granted.ID))
	require.NoError(t, err)
	awaitSingleInstance(t, m, agent)
}

// awaitSingleInstance returns once an agent has exactly one ready instance.
func awaitSingleInstance(t *testing.T, m *rig.Mesh, agent string) {
	t.Helper()
	m.Await("one instance of "+agent+" is ready", func() bool {
		resp, err := m.ListAgents(t.Context(), &troupev1.ListAgentsRequest{})
		return err == nil && slices.ContainsFunc(resp.GetAgents(), func(a *troupev1.Agent) bool {
			return a.GetName() == agent && a.GetInstances() == 1 && a.GetReady() == 1
		})
	})
}

// runAgentTurn runs a turn of an agent and returns its outcome.
func runAgentTurn(t *testing.T, m *rig.Mesh, agent string, on func(*troupev1.Event)) *troupev1.TurnResult {
	t.Helper()
	var last *troupev1.Event
	for e, err := range m.Turn(t.Context(), &troupev1.OrchestrateRequest{
		Input: &troupev1.OrchestrateRequest_Text{Text: "go"}, RequestId: uuid.NewString(), SessionId: uuid.NewString(), Target: agent,
	}) {
		require.NoError(t, err)
		on(e)
		last = e
	}
	return last.GetTurnResult()
}

func ignoreEvent(*troupev1.Event) {}

// A worker cannot exhaust the orchestrator's memory, flood its tenant's lists, report less usage than its turn
// had, or bypass the admission controller.
func TestMesh_SurvivesAMaliciousWorker(t *testing.T) {
	m := rig.StartInProcess(t, rig.Config{MaxTurns: 1})
	var rogue rogueWorker
	rogue.replaceWorker(t, m)
	event := func(s troupev1.AgentService_ExecuteStepServer, e *troupev1.Event) error {
		return s.Send(&troupev1.ExecuteStepResponse{Item: &troupev1.ExecuteStepResponse_Event{Event: e}})
	}
	result := func(s troupev1.AgentService_ExecuteStepServer, r *troupev1.StepResult) error {
		r.Step, r.Agent = 1, "research"
		return s.Send(&troupev1.ExecuteStepResponse{Item: &troupev1.ExecuteStepResponse_Result{Result: r}})
	}
	broken := &troupev1.Failure{Mode: troupev1.FailureMode_FAILURE_MODE_AGENT_LOGIC, Op: "rogue", Message: "no"}

	t.Run("events hidden from the orchestrator", func(t *testing.T) {
		hidden := protowire.AppendBytes(protowire.AppendTag(nil, 15000, protowire.BytesType), make([]byte, 4<<20))
		measured := make(chan struct{})
		rogue.handle = func(_ *troupev1.ExecuteStepRequest, s troupev1.AgentService_ExecuteStepServer) error {
			for range 30 {
				e := &troupev1.Event{Payload: &troupev1.Event_TextDelta{TextDelta: &troupev1.TextDelta{Text: "x"}}}
				e.ProtoReflect().SetUnknown(hidden)
				if err := event(s, e); err != nil {
					return err
				}
			}
			err := event(s, &troupev1.Event{Payload: &troupev1.Event_Warning{Warning: &troupev1.Warning{Reason: "SENT"}}})
			<-measured
			return errors.Join(err, result(s, &troupev1.StepResult{Failure: broken}))
		}
		before, during := heapInUse(), uint64(0)
		runAgentTurn(t, m, "research", func(e *troupev1.Event) {
			if e.GetWarning().GetReason() == "SENT" {
				during = heapInUse()
				close(measured)
			}
		})
		require.Less(t, during, before+60<<20, "of 120 MiB nothing is kept")
	})
	t.Run("a failure of 10 MiB", func(t *testing.T) {
		rogue.handle = func(_ *troupev1.ExecuteStepRequest, s troupev1.AgentService_ExecuteStepServer) error {
			return result(s, &troupev1.StepResult{Failure: &troupev1.Failure{
				Mode: broken.GetMode(), Message: "no", Facts: map[string]string{"big": strings.Repeat("x", 10<<20), "small": "y"},
			}})
		}
		for range 2 {
			got := runAgentTurn(t, m, "research", ignoreEvent).GetFailure()
			require.Equal(t, broken.GetMode(), got.GetMode(), "the mode of the step: %v", got.GetMessage())
			require.Equal(t, "y", got.GetFacts()["small"])
		}
		_, err := m.ListTraces(t.Context(), &troupev1.ListTracesRequest{})
		require.NoError(t, err)
	})
	t.Run("usage below zero", func(t *testing.T) {
		memory := troupev1.NewMemoryServiceClient(m.DialAs(identity.ID{Role: identity.Worker, Name: "research"}, rig.Memory))
		commitErr := make(chan error, 1)
		rogue.handle = func(req *troupev1.ExecuteStepRequest, s troupev1.AgentService_ExecuteStepServer) error {
			r := &troupev1.StepResult{Step: 1, Agent: "research", Text: "hi", Usage: &troupev1.Usage{InputTokens: -1 << 40}}
			_, err := memory.CommitStep(metadata.AppendToOutgoingContext(s.Context(), turnctx.CredentialKey, req.GetCredential()), &troupev1.CommitStepRequest{
				SessionId: req.GetSessionId(), TurnId: req.GetTurnId(), Epoch: req.GetEpoch(), BaseSequence: req.GetBaseSequence(),
				Messages: []*troupev1.Message{{
					Role: troupev1.Role_ROLE_ASSISTANT, Author: "research",
					Parts: []*troupev1.Part{{Content: &troupev1.Part_Text{Text: "hi"}}},
				}},
				Outcome: troupev1.TurnOutcome_TURN_OUTCOME_COMPLETED, Result: r,
			})
			commitErr <- err
			return result(s, r)
		}
		got := runAgentTurn(t, m, "research", ignoreEvent)
		err := grpcfailure.FromStatus("test", <-commitErr)
		require.True(t, failure.Is(err, failure.UserInvalidInput), "%v", err)
		require.Equal(t, troupev1.FailureMode_FAILURE_MODE_AGENT_CONTRACT, got.GetFailure().GetMode())
		require.GreaterOrEqual(t, got.GetUsage().GetInputTokens(), int64(0))
	})
	t.Run("200 turns below one", func(t *testing.T) {
		gate := gate.New(t)
		m.HostWorker(rig.SlowWorker(gate, 1))
		awaitSingleInstance(t, m, "slow")
		var begun, full atomic.Int64
		rogue.handle = func(req *troupev1.ExecuteStepRequest, s troupev1.AgentService_ExecuteStepServer) error {
			ctx := metadata.AppendToOutgoingContext(s.Context(), turnctx.CredentialKey, req.GetCredential())
			var asked, ended sync.WaitGroup
			for n := range 200 {
				asked.Add(1)
				ended.Go(func() {
					stream, err := m.Orchestrate(ctx, childRequestOf(req, n))
					if err == nil {
						_, err = stream.Recv()
					}
					switch {
					case err == nil:
						begun.Add(1)
					case strings.Contains(err.Error(), "no more than 16 child turns of trace"):
						full.Add(1)
					}
					asked.Done()
					for err == nil {
						_, err = stream.Recv()
					}
				})
			}
			asked.Wait()
			gate.Open("k")
			ended.Wait()
			return result(s, &troupev1.StepResult{Failure: broken})
		}
		runAgentTurn(t, m, "research", ignoreEvent)
		require.EqualValues(t, 16, begun.Load())
		require.EqualValues(t, 184, full.Load())
	})
	require.Nil(t, runAgentTurn(t, m, "synthesis", ignoreEvent).GetFailure(), "the mesh works")
}

// childRequestOf returns a request for a child turn, as a worker makes it with the credential of its step.
func childRequestOf(req *troupev1.ExecuteStepRequest, n int) *troupev1.OrchestrateRequest {
	var said struct {
		Root string `json:"root"`
	}
	body, _ := base64.RawURLEncoding.DecodeString(strings.Split(req.GetCredential(), ".")[1])
	_ = json.Unmarshal(body, &said)
	return &troupev1.OrchestrateRequest{
		Input: &troupev1.OrchestrateRequest_Text{Text: "hold k"}, Target: "slow", RequestId: "s",
		SessionId: turnctx.ChildSessionPrefix(req.GetSessionId()) + fmt.Sprint(n), Budget: req.GetBudget(),
		Parent: &troupev1.Parent{TraceId: req.GetTraceId(), RootTraceId: said.Root, Depth: 1},
	}
}
