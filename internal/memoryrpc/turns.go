package memoryrpc

import (
	"context"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/troupe-dev/troupe/internal/grpcfailure"
	"github.com/troupe-dev/troupe/internal/rpc"
	"github.com/troupe-dev/troupe/internal/wire"
	"github.com/troupe-dev/troupe/internal/wire/memorywire"
	"github.com/troupe-dev/troupe/pkg/conversation"
	"github.com/troupe-dev/troupe/pkg/execution"
	troupev1 "github.com/troupe-dev/troupe/pkg/gen/troupe/v1"
	"github.com/troupe-dev/troupe/pkg/memory"
	"github.com/troupe-dev/troupe/pkg/session"
)

// BeginTurn implements memory.Turns.
func (t *turns) BeginTurn(ctx context.Context, b memory.Begin) (memory.BeginResult, error) {
	r, err := t.service.BeginTurn(rpc.WithTenant(ctx, b.Ref.Tenant), memorywire.BeginToProto(b))
	if err != nil {
		return memory.BeginResult{}, grpcfailure.FromStatus("memory.BeginTurn", err)
	}
	return memorywire.BegunFromProto(r), nil
}

// RenewTurn implements memory.Turns.
func (t *turns) RenewTurn(ctx context.Context, h memory.Lease, lease time.Duration) error {
	_, err := t.service.RenewTurn(rpc.WithTenant(ctx, h.Ref.Tenant), &troupev1.RenewTurnRequest{
		SessionId: h.Ref.Session, TurnId: h.TurnID, Epoch: h.Epoch, Lease: durationpb.New(lease),
	})
	if err != nil {
		return grpcfailure.FromStatus("memory.RenewTurn", err)
	}
	return nil
}

// ReleaseTurn implements memory.Turns.
func (t *turns) ReleaseTurn(ctx context.Context, h memory.Lease) error {
	_, err := t.service.ReleaseTurn(rpc.WithTenant(ctx, h.Ref.Tenant), &troupev1.ReleaseTurnRequest{SessionId: h.Ref.Session, TurnId: h.TurnID, Epoch: h.Epoch})
	if err != nil {
		return grpcfailure.FromStatus("memory.ReleaseTurn", err)
	}
	return nil
}

// Record implements memory.Journal.
func (j *journal) Record(ctx context.Context, h memory.Lease, step int, entries []execution.Entry) error {
	_, err := j.service.Journal(rpc.WithTenant(ctx, h.Ref.Tenant), &troupev1.JournalRequest{
		SessionId: h.Ref.Session, TurnId: h.TurnID, Epoch: h.Epoch, Step: int32(step), Entries: wire.EntriesToProto(entries),
	})
	if err != nil {
		return grpcfailure.FromStatus("memory.Record", err)
	}
	return nil
}

// LoadJournal implements memory.Journal.
func (j *journal) LoadJournal(ctx context.Context, h memory.Lease, step, after int) ([]execution.Entry, error) {
	r, err := j.service.LoadJournal(rpc.WithTenant(ctx, h.Ref.Tenant), &troupev1.LoadJournalRequest{
		SessionId: h.Ref.Session, TurnId: h.TurnID, Epoch: h.Epoch, Step: int32(step), After: int32(after),
	})
	if err != nil {
		return nil, grpcfailure.FromStatus("memory.LoadJournal", err)
	}
	return wire.EntriesFromProto(r.GetEntries()), nil
}

// Recording implements memory.Journal.
func (j *journal) Recording(ctx context.Context, ref session.Ref, turnID string, step, from int) ([]execution.Entry, error) {
	r, err := j.service.GetRecording(rpc.WithTenant(ctx, ref.Tenant),
		&troupev1.GetRecordingRequest{SessionId: ref.Session, TurnId: turnID, Step: int32(step), From: int32(from)})
	if err != nil {
		return nil, grpcfailure.FromStatus("memory.Recording", err)
	}
	return wire.EntriesFromProto(r.GetEntries()), nil
}

// LoadRounds implements memory.Journal.
func (j *journal) LoadRounds(ctx context.Context, ref session.Ref, agent string, from int64, before *conversation.Rounds) ([]conversation.Rounds, error) {
	r, err := j.service.LoadRounds(rpc.WithTenant(ctx, ref.Tenant), &troupev1.LoadRoundsRequest{
		SessionId: ref.Session, Agent: agent, From: from, Before: memorywire.RoundsPositionToProto(before),
	})
	if err != nil {
		return nil, grpcfailure.FromStatus("memory.LoadRounds", err)
	}
	return memorywire.StepRoundsFromProto(r.GetSteps()), nil
}

// CommitStep implements memory.Turns. It rejects state changes that cannot be stored without calling the service.
func (t *turns) CommitStep(ctx context.Context, c memory.Commit) (int64, error) {
	if err := memory.CheckDelta("memory.CommitStep", c.State); err != nil {
		return 0, err
	}
	r, err := t.service.CommitStep(rpc.WithTenant(ctx, c.Ref.Tenant), memorywire.CommitToProto(c))
	if err != nil {
		return 0, grpcfailure.FromStatus("memory.CommitStep", err)
	}
	return r.GetLastSequence(), nil
}

// FailTurn implements memory.Turns.
func (t *turns) FailTurn(ctx context.Context, f memory.Fail) (session.Turn, error) {
	r, err := t.service.FailTurn(rpc.WithTenant(ctx, f.Ref.Tenant), memorywire.FailToProto(f))
	if err != nil {
		return session.Turn{}, grpcfailure.FromStatus("memory.FailTurn", err)
	}
	return memorywire.TurnFromProto(r.GetTurn()), nil
}
