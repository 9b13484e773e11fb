package api

import (
	"context"

	"github.com/troupe-dev/troupe/internal/wire/memorywire"
	"github.com/troupe-dev/troupe/pkg/conversation"
	"github.com/troupe-dev/troupe/pkg/execution"
	"github.com/troupe-dev/troupe/pkg/failure"
	troupev1 "github.com/troupe-dev/troupe/pkg/gen/troupe/v1"
	"github.com/troupe-dev/troupe/pkg/memory"
)

// BeginTurn implements troupev1.MemoryServiceServer.
func (s *Server) BeginTurn(ctx context.Context, r *troupev1.BeginTurnRequest) (*troupev1.BeginTurnResponse, error) {
	b := memorywire.BeginFromProto(tenantFromContext(ctx), r)
	if err := checkMessageSizes("memory.BeginTurn", "message", b.Message); err != nil {
		return nil, err
	}
	if err := checkAnswers("memory.BeginTurn", b.Predecessor.Answers); err != nil {
		return nil, err
	}
	begun, err := s.store.BeginTurn(ctx, b)
	if err != nil {
		return nil, err
	}
	return memorywire.BegunToProto(begun), nil
}

// RenewTurn implements troupev1.MemoryServiceServer.
func (s *Server) RenewTurn(ctx context.Context, r *troupev1.RenewTurnRequest) (*troupev1.RenewTurnResponse, error) {
	if err := s.store.RenewTurn(ctx, leaseFromRequest(ctx, r), r.GetLease().AsDuration()); err != nil {
		return nil, err
	}
	return &troupev1.RenewTurnResponse{}, nil
}

// ReleaseTurn implements troupev1.MemoryServiceServer.
func (s *Server) ReleaseTurn(ctx context.Context, r *troupev1.ReleaseTurnRequest) (*troupev1.ReleaseTurnResponse, error) {
	if err := s.store.ReleaseTurn(ctx, leaseFromRequest(ctx, r)); err != nil {
		return nil, err
	}
	return &troupev1.ReleaseTurnResponse{}, nil
}

// CommitStep implements troupev1.MemoryServiceServer.
func (s *Server) CommitStep(ctx context.Context, r *troupev1.CommitStepRequest) (*troupev1.CommitStepResponse, error) {
	c := memorywire.CommitFromProto(tenantFromContext(ctx), r)
	if err := checkMessageSizes("memory.CommitStep", "messages", c.Messages...); err != nil {
		return nil, err
	}
	if err := checkRoles("memory.CommitStep", c.Messages); err != nil {
		return nil, err
	}
	if err := checkPending("memory.CommitStep", c.Result.Pending); err != nil {
		return nil, err
	}
	if err := checkEntries("memory.CommitStep", c.Journal); err != nil {
		return nil, err
	}
	for _, r := range c.Rounds {
		if err := checkMessageSizes("memory.CommitStep", "rounds", r.Message); err != nil {
			return nil, err
		}
	}
	last, err := s.store.CommitStep(ctx, c)
	if err != nil {
		return nil, err
	}
	return &troupev1.CommitStepResponse{LastSequence: last}, nil
}

// FailTurn implements troupev1.MemoryServiceServer.
func (s *Server) FailTurn(ctx context.Context, r *troupev1.FailTurnRequest) (*troupev1.FailTurnResponse, error) {
	f := memorywire.FailFromProto(tenantFromContext(ctx), r)
	var pending []execution.Pending
	for _, r := range f.Results {
		pending = append(pending, r.Pending...)
	}
	if err := checkPending("memory.FailTurn", pending); err != nil {
		return nil, err
	}
	turn, err := s.store.FailTurn(ctx, f)
	if err != nil {
		return nil, err
	}
	return &troupev1.FailTurnResponse{Turn: memorywire.TurnToProto(turn)}, nil
}

// checkMessageSizes checks the size of each message with all its parts and tool calls, which a rule in the .proto
// file cannot express.
func checkMessageSizes(op, field string, messages ...conversation.Message) error {
	for _, m := range messages {
		if size := conversation.Size(m); size > conversation.MaxMessageBytes {
			return failure.Newf(failure.UserInvalidInput, op, "%s: a message of %d bytes is too long; send at most %d, in more messages",
				field, size, conversation.MaxMessageBytes).With("fields", field)
		}
	}
	return nil
}

// checkRoles checks that a step stores only messages of its agent and tools (guarantee S15). Messages of the user arrive
// with BeginTurn, the store writes summaries, and the system has no messages in a session.
func checkRoles(op string, messages []conversation.Message) error {
	for i, m := range messages {
		if m.Role != conversation.RoleAssistant && m.Role != conversation.RoleTool {
			return failure.Newf(failure.UserInvalidInput, op,
				"messages[%d].role: a step stores only messages of an agent or its tools; use ROLE_ASSISTANT or ROLE_TOOL", i).
				With("fields", "messages.role")
		}
	}
	return nil
}

// checkAnswers checks the total size of answers, because a worker receives them in one gRPC message together with
// the window.
func checkAnswers(op string, answers []execution.Answer) error {
	size := 0
	for _, a := range answers {
		size += len(a.Text)
	}
	return checkTotalSize(op, "answers", size)
}

// checkPending checks the total size of pending calls, because clients receive them in one gRPC message.
func checkPending(op string, pending []execution.Pending) error {
	size := 0
	for _, p := range pending {
		size += len(p.Arguments)
	}
	return checkTotalSize(op, "result.pending", size)
}

func checkTotalSize(op, field string, size int) error {
	if size > memory.MaxWindowBytes {
		return failure.Newf(failure.UserInvalidInput, op, "%s: %d bytes together are too many; send at most %d, and store more as an artifact",
			field, size, memory.MaxWindowBytes).With("fields", field)
	}
	return nil
}
