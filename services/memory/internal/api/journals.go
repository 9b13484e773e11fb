package api

import (
	"context"

	"github.com/troupe-dev/troupe/internal/wire"
	"github.com/troupe-dev/troupe/internal/wire/memorywire"
	"github.com/troupe-dev/troupe/pkg/conversation"
	"github.com/troupe-dev/troupe/pkg/execution"
	"github.com/troupe-dev/troupe/pkg/failure"
	troupev1 "github.com/troupe-dev/troupe/pkg/gen/troupe/v1"
	"github.com/troupe-dev/troupe/pkg/memory"
)

// Journal implements troupev1.MemoryServiceServer.
func (j journals) Journal(ctx context.Context, r *troupev1.JournalRequest) (*troupev1.JournalResponse, error) {
	const op = "memory.Record"
	entries := wire.EntriesFromProto(r.GetEntries())
	if err := checkEntries(op, entries); err != nil {
		return nil, err
	}
	if err := j.store.Record(ctx, leaseFromRequest(ctx, r), int(r.GetStep()), entries); err != nil {
		return nil, err
	}
	return &troupev1.JournalResponse{}, nil
}

// LoadJournal implements troupev1.MemoryServiceServer.
func (j journals) LoadJournal(ctx context.Context, r *troupev1.LoadJournalRequest) (*troupev1.LoadJournalResponse, error) {
	entries, err := j.store.LoadJournal(ctx, leaseFromRequest(ctx, r), int(r.GetStep()), int(r.GetAfter()))
	if err != nil {
		return nil, err
	}
	return &troupev1.LoadJournalResponse{Entries: wire.EntriesToProto(entries)}, nil
}

// GetRecording implements troupev1.MemoryServiceServer.
func (j journals) GetRecording(ctx context.Context, r *troupev1.GetRecordingRequest) (*troupev1.GetRecordingResponse, error) {
	entries, err := j.store.Recording(ctx, sessionRef(ctx, r.GetSessionId()), r.GetTurnId(), int(r.GetStep()), int(r.GetFrom()))
	if err != nil {
		return nil, err
	}
	return &troupev1.GetRecordingResponse{Entries: wire.EntriesToProto(entries)}, nil
}

// LoadRounds implements troupev1.MemoryServiceServer.
func (j journals) LoadRounds(ctx context.Context, r *troupev1.LoadRoundsRequest) (*troupev1.LoadRoundsResponse, error) {
	before := memorywire.RoundsPositionFromProto(r.GetBefore())
	steps, err := j.store.LoadRounds(ctx, sessionRef(ctx, r.GetSessionId()), r.GetAgent(), r.GetFrom(), before)
	if err != nil {
		return nil, err
	}
	return &troupev1.LoadRoundsResponse{Steps: memorywire.StepRoundsToProto(steps)}, nil
}

// checkEntries checks the size of the journal entries of one call.
func checkEntries(op string, entries []execution.Entry) error {
	size := 0
	for _, e := range entries {
		if err := checkMessageSizes(op, "entries.reply", e.Reply); err != nil {
			return err
		}
		size += len(e.Text) + conversation.Size(e.Reply) + len(e.Arguments) + len(e.StepInput)
	}
	if size > memory.MaxWindowBytes {
		return failure.Newf(failure.UserInvalidInput, op, "entries: %d bytes are too many for one call; send at most %d, in more calls",
			size, memory.MaxWindowBytes).With("fields", "entries")
	}
	return nil
}
