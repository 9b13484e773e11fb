package ownership_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/metadata"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/troupe-dev/troupe/internal/grpcfailure"
	"github.com/troupe-dev/troupe/internal/identity/turncred"
	"github.com/troupe-dev/troupe/internal/turnctx"
	"github.com/troupe-dev/troupe/pkg/failure"
	troupev1 "github.com/troupe-dev/troupe/pkg/gen/troupe/v1"
	"github.com/troupe-dev/troupe/test/ownership"
	"github.com/troupe-dev/troupe/test/rig"
)

// serviceTrials are forbidden calls to the memory service, the worker and the orchestrator. Each uses the
// certificate of its actor and bypasses the SDK. Redis and etcd would permit everything.
var serviceTrials = map[ownership.Cell][]trial{
	{Actor: ownership.Owner, Tier: ownership.AgentTier, Verb: ownership.Persist}: {updateTrial(ownership.Owner, "_kept", "temp:kept")},
	{Actor: ownership.Owner, Tier: ownership.MemoryTier, Verb: ownership.Write}:  {{tryForbiddenOwnerWrites, writeInTurn}},
	{Actor: ownership.Owner, Tier: ownership.OrchestratorTier, Verb: ownership.Write}: {updateTrial(ownership.Owner, "trace_id", "routing",
		"routing_context", "parent_context", "context"), controlTrial(ownership.Owner)},

	{Actor: ownership.Other, Tier: ownership.AgentTier, Verb: ownership.Read}:             {statusTrial(ownership.Other)},
	{Actor: ownership.Other, Tier: ownership.AgentTier, Verb: ownership.Write}:            {executeTrial(ownership.Other)},
	{Actor: ownership.Other, Tier: ownership.MemoryTier, Verb: ownership.Write}:           {writeTrial(ownership.Other)},
	{Actor: ownership.Other, Tier: ownership.MemoryTier, Verb: ownership.ReadBeyondScope}: {readTrial},
	{Actor: ownership.Other, Tier: ownership.OrchestratorTier, Verb: ownership.Write}: {
		updateTrial(ownership.Other, "trace_id", "routing"),
		controlTrial(ownership.Other),
	},
	{Actor: ownership.Other, Tier: ownership.OrchestratorTier, Verb: ownership.ReadBeyondScope}: {readTraceTrial},
	{Actor: ownership.Other, Tier: ownership.SharedTier, Verb: ownership.Write}: {
		putConfigTrial(ownership.Other),
		updateTrial(ownership.Other, "config"),
	},

	{Actor: ownership.Memory, Tier: ownership.AgentTier, Verb: ownership.Read}:  {statusTrial(ownership.Memory)},
	{Actor: ownership.Memory, Tier: ownership.AgentTier, Verb: ownership.Write}: {executeTrial(ownership.Memory)},
	{Actor: ownership.Memory, Tier: ownership.OrchestratorTier, Verb: ownership.Write}: {
		controlTrial(ownership.Memory), executeTrial(ownership.Memory),
	}, // a step of a trace

	{Actor: ownership.Orchestrator, Tier: ownership.AgentTier, Verb: ownership.Write}:  {updateTrial(ownership.Orchestrator, "_kept")},
	{Actor: ownership.Orchestrator, Tier: ownership.MemoryTier, Verb: ownership.Write}: {writeTrial(ownership.Orchestrator)},
	{Actor: ownership.Orchestrator, Tier: ownership.SharedTier, Verb: ownership.Write}: {putConfigTrial(ownership.Orchestrator)},
}

// withCredential returns a context whose calls carry the credential of an actor's turn, if it has one.
func (m *mesh) withCredential(t *testing.T, whose ownership.Actor) context.Context {
	t.Helper()
	turn, ok := m.turns[whose]
	if !ok {
		return t.Context()
	}
	return m.withCredentialFor(t, turn)
}

func (m *mesh) withCredentialFor(t *testing.T, turn turncred.Turn) context.Context {
	t.Helper()
	credential, err := turncred.New(m.Credentials.Identity(identities[ownership.Orchestrator])).Issue(turn, time.Time{})
	require.NoError(t, err)
	return metadata.AppendToOutgoingContext(t.Context(), turnctx.CredentialKey, credential)
}

// updateState requests a change of one state key in a turn.
func updateState(ctx context.Context, memory troupev1.MemoryServiceClient, turn turncred.Turn, key string) error {
	return errorOnly(memory.UpdateState(ctx, &troupev1.UpdateStateRequest{
		SessionId: turn.Session, TurnId: turn.ID, Epoch: turn.Epoch, RequestId: fmt.Sprint("r-", key, time.Now().UnixNano()),
		Delta: map[string]string{key: `"theirs"`},
	}))
}

// updateTrial returns a trial that changes keys of other tiers in the actor's own turn, where keys of MEMORY
// may be changed. An actor without a turn uses the turn of the owner.
func updateTrial(as ownership.Actor, keys ...string) trial {
	within := func(m *mesh) (ownership.Actor, turncred.Turn) {
		if turn, ok := m.turns[as]; ok {
			return as, turn
		}
		return ownership.Owner, m.turns[ownership.Owner]
	}
	return trial{
		tryForbidden: func(t *testing.T, m *mesh) error {
			t.Helper()
			var errs []error
			holder, turn := within(m)
			for _, key := range keys {
				err := updateState(m.withCredential(t, as), m.memory(as), turn, key)
				violated := failure.Is(grpcfailure.FromStatus("test", err), failure.StateViolation)
				require.True(t, violated || holder != as, "%s: %v", key, err) // only workers may call this method
				errs = append(errs, err)
			}
			return requireRejected(t, errs...)
		},
		tryUnguarded: func(t *testing.T, m *mesh) error {
			holder, turn := within(m)
			return updateState(m.withCredential(t, holder), m.memory(holder), turn, "mood")
		},
	}
}

// writeSession changes keys of three scopes and writes a journal entry in the session of a turn. It returns the
// errors.
func writeSession(ctx context.Context, memory troupev1.MemoryServiceClient, turn turncred.Turn) []error {
	return []error{
		updateState(ctx, memory, turn, "mood"), updateState(ctx, memory, turn, "user:name"), updateState(ctx, memory, turn, "app:theme"),
		writeJournal(ctx, memory, turn),
	}
}

// writeJournal writes a journal entry of the turn's step and returns the error.
func writeJournal(ctx context.Context, memory troupev1.MemoryServiceClient, turn turncred.Turn) error {
	return errorOnly(memory.Journal(ctx, &troupev1.JournalRequest{
		SessionId: turn.Session, TurnId: turn.ID, Epoch: turn.Epoch, Step: 1,
		Entries: []*troupev1.JournalEntry{
			{Number: 1, Phase: troupev1.JournalPhase_JOURNAL_PHASE_DONE, Reply: &troupev1.Message{
				Role:   troupev1.Role_ROLE_ASSISTANT,
				Author: turn.Agent, Parts: []*troupev1.Part{{Content: &troupev1.Part_Text{Text: "hi"}}},
			}},
		},
	}))
}

func commitStep(ctx context.Context, memory troupev1.MemoryServiceClient, turn turncred.Turn) error {
	return errorOnly(memory.CommitStep(ctx, &troupev1.CommitStepRequest{
		SessionId: turn.Session, TurnId: turn.ID, Epoch: turn.Epoch,
		Result: &troupev1.StepResult{Step: 1, Agent: turn.Agent, Text: "forged"}, Outcome: troupev1.TurnOutcome_TURN_OUTCOME_COMPLETED,
	}))
}

// renewTurn renews the lease of a turn and returns the error. Orchestrators may make this call too.
func renewTurn(ctx context.Context, memory troupev1.MemoryServiceClient, turn turncred.Turn) error {
	return errorOnly(memory.RenewTurn(ctx, &troupev1.RenewTurnRequest{
		SessionId: turn.Session, TurnId: turn.ID, Epoch: turn.Epoch,
		Lease: durationpb.New(10 * time.Minute),
	}))
}

// commitAndDelete makes the calls that commit a step and delete an artifact, and returns the errors.
func commitAndDelete(ctx context.Context, memory troupev1.MemoryServiceClient, turn turncred.Turn) []error {
	return []error{
		commitStep(ctx, memory, turn),
		errorOnly(memory.DeleteArtifact(ctx, &troupev1.DeleteArtifactRequest{SessionId: turn.Session, TurnId: turn.ID, Epoch: turn.Epoch, Name: "note"})),
	}
}

// writeInTurn writes the session of the owner's own turn and renews its lease. It returns the first error.
func writeInTurn(t *testing.T, m *mesh) error {
	memory, ctx, turn := m.memory(ownership.Owner), m.withCredential(t, ownership.Owner), m.turns[ownership.Owner]
	return firstError(append(writeSession(ctx, memory, turn), renewTurn(ctx, memory, turn))...)
}

// tryForbiddenOwnerWrites makes writes that not even the owner may make. They lack a credential, use another
// epoch, write another user's session, or write data that no worker may write.
func tryForbiddenOwnerWrites(t *testing.T, m *mesh) error {
	t.Helper()
	memory, ctx, turn := m.memory(ownership.Owner), m.withCredential(t, ownership.Owner), m.turns[ownership.Owner]
	errs := append(writeSession(t.Context(), memory, turn), commitAndDelete(t.Context(), memory, turn)...)
	errs = append(append(errs, writeSession(ctx, memory, m.turns[ownership.Other])...), commitAndDelete(ctx, memory, m.turns[ownership.Other])...)
	turn.Epoch++
	errs = append(append(errs, writeSession(ctx, memory, turn)...), commitAndDelete(ctx, memory, turn)...)
	return requireRejected(t, append(errs, renewTurn(t.Context(), memory, turn), renewTurn(ctx, memory, turn),
		errorOnly(memory.ReleaseTurn(ctx, &troupev1.ReleaseTurnRequest{SessionId: turn.Session, TurnId: turn.ID, Epoch: turn.Epoch - 1})),
		errorOnly(memory.ClearSession(ctx, &troupev1.MemoryServiceClearSessionRequest{SessionId: turn.Session})),
		errorOnly(memory.DeleteSession(ctx, &troupev1.MemoryServiceDeleteSessionRequest{SessionId: turn.Session})))...)
}

// writeTrial returns a trial that writes the owner's session without a credential, with the actor's credential,
// and with the owner's credential. It also writes the owner's step as an agent of a later step in the same turn.
func writeTrial(as ownership.Actor) trial {
	return trial{
		tryForbidden: func(t *testing.T, m *mesh) error {
			t.Helper()
			var errs []error
			for _, ctx := range []context.Context{t.Context(), m.withCredential(t, as), m.withCredential(t, ownership.Owner)} {
				errs = append(append(errs, writeSession(ctx, m.memory(as), m.turns[ownership.Owner])...), commitAndDelete(ctx, m.memory(as),
					m.turns[ownership.Owner])...)
				if as == ownership.Other {
					errs = append(errs, renewTurn(ctx, m.memory(as), m.turns[ownership.Owner]))
				}
			}
			if as == ownership.Other {
				beside := m.turns[ownership.Owner]
				beside.Agent, beside.Step = identities[as].Name, beside.Step+1
				ctx := m.withCredentialFor(t, beside)
				errs = append(errs, writeJournal(ctx, m.memory(as), m.turns[ownership.Owner]), commitStep(ctx, m.memory(as), m.turns[ownership.Owner]))
			}
			return requireRejected(t, errs...)
		},
		tryUnguarded: writeInTurn,
	}
}

// readSession makes every call that reads the session of a turn, and returns the errors.
func readSession(ctx context.Context, memory troupev1.MemoryServiceClient, turn turncred.Turn) []error {
	return []error{
		errorOnly(memory.GetSession(ctx, &troupev1.MemoryServiceGetSessionRequest{SessionId: turn.Session})),
		errorOnly(memory.LoadHistory(ctx, &troupev1.LoadHistoryRequest{SessionId: turn.Session, Limit: 5})),
		errorOnly(memory.GetState(ctx, &troupev1.MemoryServiceGetStateRequest{SessionId: turn.Session})),
		errorOnly(memory.ListArtifacts(ctx, &troupev1.MemoryServiceListArtifactsRequest{SessionId: turn.Session})),
		errorOnly(memory.SearchMemory(ctx, &troupev1.SearchMemoryRequest{UserId: turn.User, Query: "hello", Limit: 5})),
	}
}

// readTrial reads the owner's session and its user's history as another agent: without a credential, with its own
// credential, and with the owner's credential.
var readTrial = trial{
	tryForbidden: func(t *testing.T, m *mesh) error {
		t.Helper()
		var errs []error
		for _, ctx := range []context.Context{t.Context(), m.withCredential(t, ownership.Other), m.withCredential(t, ownership.Owner)} {
			errs = append(errs, readSession(ctx, m.memory(ownership.Other), m.turns[ownership.Owner])...)
		}
		return requireRejected(t, errs...)
	},
	tryUnguarded: func(t *testing.T, m *mesh) error {
		return firstError(readSession(m.withCredential(t, ownership.Owner), m.memory(ownership.Owner), m.turns[ownership.Owner])...)
	},
}

// controlTrial returns a trial that cancels a trace of another actor and changes the desired state of agents,
// with every credential that the actor has.
func controlTrial(as ownership.Actor) trial {
	return trial{
		tryForbidden: func(t *testing.T, m *mesh) error {
			t.Helper()
			service, ctx := m.orchestrator(t), m.withCredential(t, as)
			return requireRejected(t,
				errorOnly(service.CancelTrace(ctx, &troupev1.CancelTraceRequest{TraceId: m.ownerTrace})),
				errorOnly(service.PauseAgent(ctx, &troupev1.PauseAgentRequest{Agent: ownerAgent})),
				errorOnly(service.ResumeAgent(ctx, &troupev1.ResumeAgentRequest{Agent: ownerAgent})),
				errorOnly(service.QuarantineAgent(ctx, &troupev1.QuarantineAgentRequest{Agent: ownerAgent, Reason: "theirs"})))
		},
		tryUnguarded: func(t *testing.T, m *mesh) error {
			return firstRejection(
				errorOnly(m.CancelTrace(t.Context(), &troupev1.CancelTraceRequest{TraceId: m.ownerTrace})),
				errorOnly(m.ResumeAgent(t.Context(), &troupev1.ResumeAgentRequest{Agent: ownerAgent})))
		},
	}
}

// readTraceTrial reads a trace of the owner.
var readTraceTrial = trial{
	tryForbidden: func(t *testing.T, m *mesh) error {
		t.Helper()
		service, req := m.orchestrator(t), &troupev1.GetTraceRequest{TraceId: m.ownerTrace}
		return requireRejected(t, errorOnly(service.GetTrace(t.Context(), req)), errorOnly(service.GetTrace(m.withCredential(t, ownership.Other), req)))
	},
	tryUnguarded: readParentTrace,
}

// readParentTrace reads the parent trace as another agent in a child turn.
func readParentTrace(t *testing.T, m *mesh) error {
	turn := m.turns[ownership.Other]
	turn.Trace, turn.Epoch = m.ownerTrace, 1<<40 // higher than every other epoch
	return firstError(errorOnly(m.orchestrator(t).GetTrace(m.withCredentialFor(t, turn), &troupev1.GetTraceRequest{TraceId: m.ownerTrace})))
}

// putConfigTrial returns a trial that changes the configuration of the owner.
func putConfigTrial(as ownership.Actor) trial {
	put := func(t *testing.T, m *mesh, as ownership.Actor) error {
		return errorOnly(m.memory(as).PutConfig(t.Context(), &troupev1.PutConfigRequest{
			Agent: ownerAgent, Base: m.owner.Config().Version(), Protocol: troupev1.ConfigProtocol_CONFIG_PROTOCOL_MERGE, Delta: map[string]string{"pace": `"slow"`},
		}))
	}
	return trial{
		tryForbidden: func(t *testing.T, m *mesh) error { t.Helper(); return requireRejected(t, put(t, m, as)) },
		tryUnguarded: func(t *testing.T, m *mesh) error { return firstError(put(t, m, ownership.Owner)) },
	}
}

// callStatusMethods makes the status calls of the worker and returns the errors.
func callStatusMethods(t *testing.T, m *mesh, as ownership.Actor) []error {
	lifecycle := troupev1.NewLifecycleServiceClient(m.dial(as, rig.Worker(ownerAgent)))
	return []error{
		errorOnly(lifecycle.GetState(t.Context(), &troupev1.GetStateRequest{})),
		errorOnly(lifecycle.GetMetrics(t.Context(), &troupev1.GetMetricsRequest{})),
		errorOnly(lifecycle.OwnsState(t.Context(), &troupev1.OwnsStateRequest{Key: "_kept"})),
	}
}

func statusTrial(as ownership.Actor) trial {
	return trial{
		tryForbidden: func(t *testing.T, m *mesh) error {
			t.Helper()
			return requireRejected(t, callStatusMethods(t, m, as)...)
		},
		tryUnguarded: func(t *testing.T, m *mesh) error {
			return firstError(callStatusMethods(t, m, ownership.Orchestrator)...)
		},
	}
}

// executeTrial returns a trial that sends the worker a step or a lifecycle command.
func executeTrial(as ownership.Actor) trial {
	orders := func(t *testing.T, m *mesh, as ownership.Actor) []error {
		conn := m.dial(as, rig.Worker(ownerAgent))
		stream, err := troupev1.NewAgentServiceClient(conn).ExecuteStep(t.Context(), &troupev1.ExecuteStepRequest{})
		if err == nil {
			_, err = stream.Recv()
		}
		return []error{err, errorOnly(troupev1.NewLifecycleServiceClient(conn).Resume(t.Context(), &troupev1.ResumeRequest{}))}
	}
	return trial{
		tryForbidden: func(t *testing.T, m *mesh) error {
			t.Helper()
			lifecycle := troupev1.NewLifecycleServiceClient(m.dial(as, rig.Worker(ownerAgent)))
			return requireRejected(t, append(orders(t, m, as),
				errorOnly(lifecycle.Pause(t.Context(), &troupev1.PauseRequest{})),
				errorOnly(lifecycle.Shutdown(t.Context(), &troupev1.ShutdownRequest{})))...)
		},
		tryUnguarded: func(t *testing.T, m *mesh) error { return firstRejection(orders(t, m, ownership.Orchestrator)...) },
	}
}

// firstRejection returns the first error that is a rejection, and ignores other errors.
func firstRejection(errs ...error) error {
	for _, err := range errs {
		if wrong := grpcfailure.FromStatus("test", err); err != nil && failure.Is(wrong, rejectionModes...) {
			return wrong
		}
	}
	return nil
}
