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

// byCertificate are accesses of whole processes, each with its own certificate and without the SDK, at the
// ports of the memory service, of the worker and of the orchestrator. Redis and etcd would permit everything.
var byCertificate = map[ownership.Cell][]trial{
	{Actor: ownership.Owner, Tier: ownership.AgentTier, Verb: ownership.Persist}: {updates(ownership.Owner, "_kept", "temp:kept")},
	{Actor: ownership.Owner, Tier: ownership.MemoryTier, Verb: ownership.Write}:  {{ownerWrites, writesInTurn}},
	{Actor: ownership.Owner, Tier: ownership.OrchestratorTier, Verb: ownership.Write}: {updates(ownership.Owner, "trace_id", "routing",
		"routing_context", "parent_context", "context"), steers(ownership.Owner)},

	{Actor: ownership.Other, Tier: ownership.AgentTier, Verb: ownership.Read}:          {observes(ownership.Other)},
	{Actor: ownership.Other, Tier: ownership.AgentTier, Verb: ownership.Write}:         {executes(ownership.Other)},
	{Actor: ownership.Other, Tier: ownership.MemoryTier, Verb: ownership.Write}:        {writes(ownership.Other)},
	{Actor: ownership.Other, Tier: ownership.MemoryTier, Verb: ownership.Beyond}:       {looks},
	{Actor: ownership.Other, Tier: ownership.OrchestratorTier, Verb: ownership.Write}:  {updates(ownership.Other, "trace_id", "routing"), steers(ownership.Other)},
	{Actor: ownership.Other, Tier: ownership.OrchestratorTier, Verb: ownership.Beyond}: {follows},
	{Actor: ownership.Other, Tier: ownership.SharedTier, Verb: ownership.Write}:        {configures(ownership.Other), updates(ownership.Other, "config")},

	{Actor: ownership.Memory, Tier: ownership.AgentTier, Verb: ownership.Read}:  {observes(ownership.Memory)},
	{Actor: ownership.Memory, Tier: ownership.AgentTier, Verb: ownership.Write}: {executes(ownership.Memory)},
	{Actor: ownership.Memory, Tier: ownership.OrchestratorTier, Verb: ownership.Write}: {
		steers(ownership.Memory), executes(ownership.Memory),
	}, // a step of a trace

	{Actor: ownership.Orchestrator, Tier: ownership.AgentTier, Verb: ownership.Write}:  {updates(ownership.Orchestrator, "_kept")},
	{Actor: ownership.Orchestrator, Tier: ownership.MemoryTier, Verb: ownership.Write}: {writes(ownership.Orchestrator)},
	{Actor: ownership.Orchestrator, Tier: ownership.SharedTier, Verb: ownership.Write}: {configures(ownership.Orchestrator)},
}

// showing returns a context whose calls carry the credential of an actor's turn, if it has one.
func (m *mesh) showing(t *testing.T, whose ownership.Actor) context.Context {
	t.Helper()
	turn, ok := m.turns[whose]
	if !ok {
		return t.Context()
	}
	return m.credited(t, turn)
}

func (m *mesh) credited(t *testing.T, turn turncred.Turn) context.Context {
	t.Helper()
	credential, err := turncred.New(m.Credentials.Identity(ids[ownership.Orchestrator])).Issue(turn, time.Time{})
	require.NoError(t, err)
	return metadata.AppendToOutgoingContext(t.Context(), turnctx.CredentialKey, credential)
}

// update asks for a change of state in a turn.
func update(ctx context.Context, memory troupev1.MemoryServiceClient, turn turncred.Turn, key string) error {
	return errOf(memory.UpdateState(ctx, &troupev1.UpdateStateRequest{
		SessionId: turn.Session, TurnId: turn.ID, Epoch: turn.Epoch, RequestId: fmt.Sprint("r-", key, time.Now().UnixNano()),
		Delta: map[string]string{key: `"theirs"`},
	}))
}

// updates requests changes of keys of other tiers in the actor's own turn, where keys of MEMORY may be changed.
// An actor without a turn uses the turn of the scribe.
func updates(as ownership.Actor, keys ...string) trial {
	within := func(m *mesh) (ownership.Actor, turncred.Turn) {
		if turn, ok := m.turns[as]; ok {
			return as, turn
		}
		return ownership.Owner, m.turns[ownership.Owner]
	}
	return trial{
		try: func(t *testing.T, m *mesh) error {
			t.Helper()
			var errs []error
			holder, turn := within(m)
			for _, key := range keys {
				err := update(m.showing(t, as), m.memory(as), turn, key)
				violated := failure.Is(grpcfailure.FromStatus("test", err), failure.StateViolation)
				require.True(t, violated || holder != as, "%s: %v", key, err) // who is no worker may not call this at all
				errs = append(errs, err)
			}
			return refused(t, errs...)
		},
		without: func(t *testing.T, m *mesh) error {
			holder, turn := within(m)
			return update(m.showing(t, holder), m.memory(holder), turn, "mood")
		},
	}
}

// written returns the error of calls that write the session of a turn.
func written(ctx context.Context, memory troupev1.MemoryServiceClient, turn turncred.Turn) []error {
	return []error{
		update(ctx, memory, turn, "mood"), update(ctx, memory, turn, "user:name"), update(ctx, memory, turn, "app:theme"),
		journaled(ctx, memory, turn),
	}
}

// journaled is how a call is answered that writes the journal of a turn's step, and committed how one
// that makes its result.
func journaled(ctx context.Context, memory troupev1.MemoryServiceClient, turn turncred.Turn) error {
	return errOf(memory.Journal(ctx, &troupev1.JournalRequest{
		SessionId: turn.Session, TurnId: turn.ID, Epoch: turn.Epoch, Step: 1,
		Entries: []*troupev1.JournalEntry{
			{Number: 1, Phase: troupev1.JournalPhase_JOURNAL_PHASE_DONE, Reply: &troupev1.Message{
				Role:   troupev1.Role_ROLE_ASSISTANT,
				Author: turn.Agent, Parts: []*troupev1.Part{{Content: &troupev1.Part_Text{Text: "hi"}}},
			}},
		},
	}))
}

func committed(ctx context.Context, memory troupev1.MemoryServiceClient, turn turncred.Turn) error {
	return errOf(memory.CommitStep(ctx, &troupev1.CommitStepRequest{
		SessionId: turn.Session, TurnId: turn.ID, Epoch: turn.Epoch,
		Result: &troupev1.StepResult{Step: 1, Agent: turn.Agent, Text: "forged"}, Outcome: troupev1.TurnOutcome_TURN_OUTCOME_COMPLETED,
	}))
}

// renewed is the outcome of a call that keeps a turn open, which orchestrators make as well.
func renewed(ctx context.Context, memory troupev1.MemoryServiceClient, turn turncred.Turn) error {
	return errOf(memory.RenewTurn(ctx, &troupev1.RenewTurnRequest{
		SessionId: turn.Session, TurnId: turn.ID, Epoch: turn.Epoch,
		Lease: durationpb.New(10 * time.Minute),
	}))
}

// ended returns the error of calls that end a turn or delete a session.
func ended(ctx context.Context, memory troupev1.MemoryServiceClient, turn turncred.Turn) []error {
	return []error{
		committed(ctx, memory, turn),
		errOf(memory.DeleteArtifact(ctx, &troupev1.DeleteArtifactRequest{SessionId: turn.Session, TurnId: turn.ID, Epoch: turn.Epoch, Name: "note"})),
	}
}

// writesInTurn is what the agent may ask for in its turn.
func writesInTurn(t *testing.T, m *mesh) error {
	memory, ctx, turn := m.memory(ownership.Owner), m.showing(t, ownership.Owner), m.turns[ownership.Owner]
	return allow(append(written(ctx, memory, turn), renewed(ctx, memory, turn))...)
}

// ownerWrites writes as the agent of the turn: without a credential, under another epoch, into another user's
// session, and data that no worker may write.
func ownerWrites(t *testing.T, m *mesh) error {
	t.Helper()
	memory, ctx, turn := m.memory(ownership.Owner), m.showing(t, ownership.Owner), m.turns[ownership.Owner]
	errs := append(written(t.Context(), memory, turn), ended(t.Context(), memory, turn)...)
	errs = append(append(errs, written(ctx, memory, m.turns[ownership.Other])...), ended(ctx, memory, m.turns[ownership.Other])...)
	turn.Epoch++
	errs = append(append(errs, written(ctx, memory, turn)...), ended(ctx, memory, turn)...)
	return refused(t, append(errs, renewed(t.Context(), memory, turn), renewed(ctx, memory, turn),
		errOf(memory.ReleaseTurn(ctx, &troupev1.ReleaseTurnRequest{SessionId: turn.Session, TurnId: turn.ID, Epoch: turn.Epoch - 1})),
		errOf(memory.ClearSession(ctx, &troupev1.MemoryServiceClearSessionRequest{SessionId: turn.Session})),
		errOf(memory.DeleteSession(ctx, &troupev1.MemoryServiceDeleteSessionRequest{SessionId: turn.Session})))...)
}

// writes into the session of the scribe without a credential, with the actor's own and with the scribe's. It
// also writes into the scribe's step as an agent of the same turn with a step of its own.
func writes(as ownership.Actor) trial {
	return trial{
		try: func(t *testing.T, m *mesh) error {
			t.Helper()
			var errs []error
			for _, ctx := range []context.Context{t.Context(), m.showing(t, as), m.showing(t, ownership.Owner)} {
				errs = append(append(errs, written(ctx, m.memory(as), m.turns[ownership.Owner])...), ended(ctx, m.memory(as), m.turns[ownership.Owner])...)
				if as == ownership.Other {
					errs = append(errs, renewed(ctx, m.memory(as), m.turns[ownership.Owner]))
				}
			}
			if as == ownership.Other {
				beside := m.turns[ownership.Owner]
				beside.Agent, beside.Step = ids[as].Name, beside.Step+1
				ctx := m.credited(t, beside)
				errs = append(errs, journaled(ctx, m.memory(as), m.turns[ownership.Owner]), committed(ctx, m.memory(as), m.turns[ownership.Owner]))
			}
			return refused(t, errs...)
		},
		without: writesInTurn,
	}
}

// reading returns the error of calls that read the session of a turn.
func reading(ctx context.Context, memory troupev1.MemoryServiceClient, turn turncred.Turn) []error {
	return []error{
		errOf(memory.GetSession(ctx, &troupev1.MemoryServiceGetSessionRequest{SessionId: turn.Session})),
		errOf(memory.LoadHistory(ctx, &troupev1.LoadHistoryRequest{SessionId: turn.Session, Limit: 5})),
		errOf(memory.GetState(ctx, &troupev1.MemoryServiceGetStateRequest{SessionId: turn.Session})),
		errOf(memory.ListArtifacts(ctx, &troupev1.MemoryServiceListArtifactsRequest{SessionId: turn.Session})),
		errOf(memory.SearchMemory(ctx, &troupev1.SearchMemoryRequest{UserId: turn.User, Query: "hello", Limit: 5})),
	}
}

// looks reads the session of the scribe and the history of its user as another agent: without a credential,
// with its own, and with the scribe's.
var looks = trial{
	try: func(t *testing.T, m *mesh) error {
		t.Helper()
		var errs []error
		for _, ctx := range []context.Context{t.Context(), m.showing(t, ownership.Other), m.showing(t, ownership.Owner)} {
			errs = append(errs, reading(ctx, m.memory(ownership.Other), m.turns[ownership.Owner])...)
		}
		return refused(t, errs...)
	},
	without: func(t *testing.T, m *mesh) error {
		return allow(reading(m.showing(t, ownership.Owner), m.memory(ownership.Owner), m.turns[ownership.Owner])...)
	},
}

// steers cancels a trace of another actor, and changes the desired state of agents, with every credential that
// it has.
func steers(as ownership.Actor) trial {
	return trial{
		try: func(t *testing.T, m *mesh) error {
			t.Helper()
			service, ctx := m.orchestrator(t), m.showing(t, as)
			return refused(t,
				errOf(service.CancelTrace(ctx, &troupev1.CancelTraceRequest{TraceId: m.trace})),
				errOf(service.PauseAgent(ctx, &troupev1.PauseAgentRequest{Agent: scribe})),
				errOf(service.ResumeAgent(ctx, &troupev1.ResumeAgentRequest{Agent: scribe})),
				errOf(service.QuarantineAgent(ctx, &troupev1.QuarantineAgentRequest{Agent: scribe, Reason: "theirs"})))
		},
		without: func(t *testing.T, m *mesh) error {
			return passed(
				errOf(m.CancelTrace(t.Context(), &troupev1.CancelTraceRequest{TraceId: m.trace})),
				errOf(m.ResumeAgent(t.Context(), &troupev1.ResumeAgentRequest{Agent: scribe})))
		},
	}
}

// follows reads a trace of the scribe.
var follows = trial{
	try: func(t *testing.T, m *mesh) error {
		t.Helper()
		service, req := m.orchestrator(t), &troupev1.GetTraceRequest{TraceId: m.trace}
		return refused(t, errOf(service.GetTrace(t.Context(), req)), errOf(service.GetTrace(m.showing(t, ownership.Other), req)))
	},
	without: seesItsTrace,
}

// seesItsTrace reads the parent trace as another agent in a child turn.
func seesItsTrace(t *testing.T, m *mesh) error {
	turn := m.turns[ownership.Other]
	turn.Trace, turn.Epoch = m.trace, 1<<40 // which no other one is above
	return allow(errOf(m.orchestrator(t).GetTrace(m.credited(t, turn), &troupev1.GetTraceRequest{TraceId: m.trace})))
}

// configures changes the configuration of the scribe.
func configures(as ownership.Actor) trial {
	put := func(t *testing.T, m *mesh, as ownership.Actor) error {
		return errOf(m.memory(as).PutConfig(t.Context(), &troupev1.PutConfigRequest{
			Agent: scribe, Base: m.scribe.Config().Version(), Protocol: troupev1.ConfigProtocol_CONFIG_PROTOCOL_MERGE, Delta: map[string]string{"pace": `"slow"`},
		}))
	}
	return trial{
		try:     func(t *testing.T, m *mesh) error { t.Helper(); return refused(t, put(t, m, as)) },
		without: func(t *testing.T, m *mesh) error { return allow(put(t, m, ownership.Owner)) },
	}
}

// observed returns the answer of the worker to a status call.
func observed(t *testing.T, m *mesh, as ownership.Actor) []error {
	lifecycle := troupev1.NewLifecycleServiceClient(m.at(as, rig.Worker(scribe)))
	return []error{
		errOf(lifecycle.GetState(t.Context(), &troupev1.GetStateRequest{})),
		errOf(lifecycle.GetMetrics(t.Context(), &troupev1.GetMetricsRequest{})),
		errOf(lifecycle.OwnsState(t.Context(), &troupev1.OwnsStateRequest{Key: "_kept"})),
	}
}

func observes(as ownership.Actor) trial {
	return trial{
		try:     func(t *testing.T, m *mesh) error { t.Helper(); return refused(t, observed(t, m, as)...) },
		without: func(t *testing.T, m *mesh) error { return allow(observed(t, m, ownership.Orchestrator)...) },
	}
}

// executes gives the worker a step, or another command that changes its state.
func executes(as ownership.Actor) trial {
	orders := func(t *testing.T, m *mesh, as ownership.Actor) []error {
		conn := m.at(as, rig.Worker(scribe))
		stream, err := troupev1.NewAgentServiceClient(conn).ExecuteStep(t.Context(), &troupev1.ExecuteStepRequest{})
		if err == nil {
			_, err = stream.Recv()
		}
		return []error{err, errOf(troupev1.NewLifecycleServiceClient(conn).Resume(t.Context(), &troupev1.ResumeRequest{}))}
	}
	return trial{
		try: func(t *testing.T, m *mesh) error {
			t.Helper()
			lifecycle := troupev1.NewLifecycleServiceClient(m.at(as, rig.Worker(scribe)))
			return refused(t, append(orders(t, m, as),
				errOf(lifecycle.Pause(t.Context(), &troupev1.PauseRequest{})),
				errOf(lifecycle.Shutdown(t.Context(), &troupev1.ShutdownRequest{})))...)
		},
		without: func(t *testing.T, m *mesh) error { return passed(orders(t, m, ownership.Orchestrator)...) },
	}
}

// passed returns the first rejection and ignores other outcomes.
func passed(errs ...error) error {
	for _, err := range errs {
		if wrong := grpcfailure.FromStatus("test", err); err != nil && failure.Is(wrong, refusals...) {
			return wrong
		}
	}
	return nil
}
