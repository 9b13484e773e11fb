// Package sessions serves the SessionService of the orchestrator. Clients see their conversations here,
// because the memory service is not reachable from outside.
package sessions

import (
	"cmp"
	"context"

	"github.com/troupe-dev/troupe/internal/identity"
	"github.com/troupe-dev/troupe/internal/wire"
	"github.com/troupe-dev/troupe/internal/wire/memorywire"
	troupev1 "github.com/troupe-dev/troupe/pkg/gen/troupe/v1"
	"github.com/troupe-dev/troupe/pkg/memory"
	"github.com/troupe-dev/troupe/pkg/session"
	"github.com/troupe-dev/troupe/services/orchestrator/internal/erase"
	"github.com/troupe-dev/troupe/services/orchestrator/internal/turn/compact"
)

// Server implements troupev1.SessionServiceServer.
type Server struct {
	troupev1.UnimplementedSessionServiceServer
	Memory    memory.Store
	Eraser    *erase.Eraser
	Compactor *compact.Compactor // (nil compacts no session)
}

// Page sizes when the request specifies none.
const (
	defaultMessages = 100
	defaultSessions = 20
	defaultHits     = 10
)

// tenantFromContext returns the tenant of the caller. Every lookup includes it, so a call never finds objects of
// another tenant (guarantee S5).
func tenantFromContext(ctx context.Context) string { return identity.PrincipalFromContext(ctx).Tenant }

// sessionRef returns the reference of a session of the caller's tenant in the memory service.
func sessionRef(ctx context.Context, id string) session.Ref {
	return session.Ref{Tenant: tenantFromContext(ctx), Session: id}
}

// GetSession implements troupev1.SessionServiceServer.
func (s *Server) GetSession(ctx context.Context, req *troupev1.GetSessionRequest) (*troupev1.GetSessionResponse, error) {
	found, err := s.Memory.GetSession(ctx, sessionRef(ctx, req.GetSessionId()))
	if err != nil {
		return nil, err
	}
	return &troupev1.GetSessionResponse{Session: memorywire.SessionToProto(found)}, nil
}

// ListMessages implements troupev1.SessionServiceServer.
func (s *Server) ListMessages(ctx context.Context, req *troupev1.ListMessagesRequest) (*troupev1.ListMessagesResponse, error) {
	limit := cmp.Or(int(req.GetPageSize()), defaultMessages)
	messages, err := s.Memory.LoadHistory(ctx, sessionRef(ctx, req.GetSessionId()), req.GetAfterSequence(), limit)
	if err != nil {
		return nil, err
	}
	return &troupev1.ListMessagesResponse{Messages: wire.MessagesToProto(messages)}, nil
}

// ListRounds implements troupev1.SessionServiceServer.
func (s *Server) ListRounds(ctx context.Context, req *troupev1.ListRoundsRequest) (*troupev1.ListRoundsResponse, error) {
	before := memorywire.RoundsPositionFromProto(req.GetBefore())
	steps, err := s.Memory.LoadRounds(ctx, sessionRef(ctx, req.GetSessionId()), req.GetAgent(), 0, before)
	if err != nil {
		return nil, err
	}
	return &troupev1.ListRoundsResponse{Steps: memorywire.StepRoundsToProto(steps)}, nil
}

// ListSessions implements troupev1.SessionServiceServer.
func (s *Server) ListSessions(ctx context.Context, req *troupev1.ListSessionsRequest) (*troupev1.ListSessionsResponse, error) {
	found, next, err := s.Memory.ListSessions(ctx, memory.SessionFilter{
		Tenant: tenantFromContext(ctx), User: req.GetUserId(), Limit: cmp.Or(int(req.GetPageSize()), defaultSessions), After: req.GetPageToken(),
	})
	if err != nil {
		return nil, err
	}
	return &troupev1.ListSessionsResponse{Sessions: memorywire.SessionsToProto(found), NextPageToken: next}, nil
}

// GetSessionState implements troupev1.SessionServiceServer.
func (s *Server) GetSessionState(ctx context.Context, req *troupev1.GetSessionStateRequest) (*troupev1.GetSessionStateResponse, error) {
	seen, err := s.Memory.GetState(ctx, sessionRef(ctx, req.GetSessionId()))
	if err != nil {
		return nil, err
	}
	r := memorywire.SnapshotToProto(seen)
	return &troupev1.GetSessionStateResponse{Values: r.GetValues(), Revisions: r.GetRevisions()}, nil
}

// ListArtifacts implements troupev1.SessionServiceServer.
func (s *Server) ListArtifacts(ctx context.Context, req *troupev1.ListArtifactsRequest) (*troupev1.ListArtifactsResponse, error) {
	stored, err := s.Memory.ListArtifacts(ctx, sessionRef(ctx, req.GetSessionId()))
	if err != nil {
		return nil, err
	}
	return &troupev1.ListArtifactsResponse{Artifacts: memorywire.ArtifactsToProto(stored)}, nil
}

// GetArtifact implements troupev1.SessionServiceServer.
func (s *Server) GetArtifact(req *troupev1.GetArtifactRequest, stream troupev1.SessionService_GetArtifactServer) error {
	ctx := stream.Context()
	from := sessionRef(ctx, req.GetSessionId())
	a, err := s.Memory.GetArtifact(ctx, from, req.GetName(), int(req.GetVersion()))
	if err != nil {
		return err
	}
	err = stream.Send(&troupev1.GetArtifactResponse{Item: &troupev1.GetArtifactResponse_Artifact{Artifact: memorywire.ArtifactToProto(a)}})
	for offset := req.GetOffset(); err == nil && offset < a.Size; {
		piece, failed := s.Memory.ReadArtifact(ctx, from, a.Content, offset)
		if failed != nil || len(piece) == 0 {
			return failed
		}
		offset += int64(len(piece))
		err = stream.Send(&troupev1.GetArtifactResponse{Item: &troupev1.GetArtifactResponse_Chunk{Chunk: piece}})
	}
	return err
}

// PauseSession implements troupev1.SessionServiceServer.
func (s *Server) PauseSession(ctx context.Context, req *troupev1.PauseSessionRequest) (*troupev1.PauseSessionResponse, error) {
	paused, err := s.update(ctx, req.GetSessionId(), session.Pause)
	if err != nil {
		return nil, err
	}
	return &troupev1.PauseSessionResponse{Session: memorywire.SessionToProto(paused)}, nil
}

// CloseSession implements troupev1.SessionServiceServer.
func (s *Server) CloseSession(ctx context.Context, req *troupev1.CloseSessionRequest) (*troupev1.CloseSessionResponse, error) {
	closed, err := s.update(ctx, req.GetSessionId(), session.Close)
	if err != nil {
		return nil, err
	}
	return &troupev1.CloseSessionResponse{Session: memorywire.SessionToProto(closed)}, nil
}

// ResumeSession implements troupev1.SessionServiceServer.
func (s *Server) ResumeSession(ctx context.Context, req *troupev1.ResumeSessionRequest) (*troupev1.ResumeSessionResponse, error) {
	resumed, err := s.update(ctx, req.GetSessionId(), session.Resume)
	if err != nil {
		return nil, err
	}
	return &troupev1.ResumeSessionResponse{Session: memorywire.SessionToProto(resumed)}, nil
}

// ConfigureSession implements troupev1.SessionServiceServer.
func (s *Server) ConfigureSession(ctx context.Context, req *troupev1.ConfigureSessionRequest) (*troupev1.ConfigureSessionResponse, error) {
	settings := memorywire.SettingsFromProto(req.GetSettings())
	configured, err := s.Memory.UpdateSession(ctx, memory.SessionUpdate{
		Ref: sessionRef(ctx, req.GetSessionId()), Settings: &settings, IfRevision: req.GetIfRevision(), Create: req.GetCreate(), User: req.GetUserId(),
	})
	if err != nil {
		return nil, err
	}
	return &troupev1.ConfigureSessionResponse{Session: memorywire.SessionToProto(configured)}, nil
}

// SaveSession implements troupev1.SessionServiceServer.
func (s *Server) SaveSession(ctx context.Context, req *troupev1.SaveSessionRequest) (*troupev1.SaveSessionResponse, error) {
	saved, err := s.update(ctx, req.GetSessionId(), session.Save)
	if err != nil {
		return nil, err
	}
	return &troupev1.SaveSessionResponse{Session: memorywire.SessionToProto(saved)}, nil
}

// update applies a verb to a session. A session without automatic save is saved by it, and may then be too long.
func (s *Server) update(ctx context.Context, id string, verb session.Verb) (session.Session, error) {
	ref := sessionRef(ctx, id)
	updated, err := s.Memory.UpdateSession(ctx, memory.SessionUpdate{Ref: ref, Verb: verb})
	if err == nil && updated.Settings.NoAutoSave && verb != session.Resume {
		s.Compactor.Enqueue(compact.Session{Ref: ref, Settings: updated.Settings, Messages: updated.Size.Messages})
	}
	return updated, err
}

// CompactSession implements troupev1.SessionServiceServer.
func (s *Server) CompactSession(ctx context.Context, req *troupev1.CompactSessionRequest) (*troupev1.CompactSessionResponse, error) {
	done, err := s.Memory.CompactSession(ctx, memory.Compact{
		Ref: sessionRef(ctx,
			req.GetSessionId()), Strategy: memorywire.StrategyFromProto(req.GetStrategy()), Keep: int(req.GetKeepRecent()), Summary: req.GetSummary(),
	})
	if err != nil {
		return nil, err
	}
	return &troupev1.CompactSessionResponse{Compaction: memorywire.CompactionToProto(done)}, nil
}

// ClearSession implements troupev1.SessionServiceServer.
func (s *Server) ClearSession(ctx context.Context, req *troupev1.ClearSessionRequest) (*troupev1.ClearSessionResponse, error) {
	if err := s.Memory.ClearSession(ctx, sessionRef(ctx, req.GetSessionId())); err != nil {
		return nil, err
	}
	return &troupev1.ClearSessionResponse{}, nil
}

// DeleteSession implements troupev1.SessionServiceServer.
func (s *Server) DeleteSession(ctx context.Context, req *troupev1.DeleteSessionRequest) (*troupev1.DeleteSessionResponse, error) {
	erased, err := s.Eraser.EraseSession(ctx, sessionRef(ctx, req.GetSessionId()), identity.PrincipalFromContext(ctx).String())
	if err != nil {
		return nil, err
	}
	return &troupev1.DeleteSessionResponse{Receipt: memorywire.ErasureToProto(erased)}, nil
}

// EraseUser implements troupev1.SessionServiceServer.
func (s *Server) EraseUser(ctx context.Context, req *troupev1.EraseUserRequest) (*troupev1.EraseUserResponse, error) {
	caller := identity.PrincipalFromContext(ctx)
	erased, err := s.Eraser.EraseUser(ctx, caller.Tenant, req.GetUserId(), caller.String())
	if err != nil {
		return nil, err
	}
	return &troupev1.EraseUserResponse{Receipt: memorywire.ErasureToProto(erased)}, nil
}

// SearchMemory implements troupev1.SessionServiceServer.
func (s *Server) SearchMemory(ctx context.Context, req *troupev1.SessionServiceSearchMemoryRequest) (*troupev1.SessionServiceSearchMemoryResponse, error) {
	hits, err := s.Memory.SearchMemory(ctx, memory.Search{
		Tenant: tenantFromContext(ctx), User: req.GetUserId(), Query: req.GetQuery(), Limit: cmp.Or(int(req.GetLimit()), defaultHits),
	})
	if err != nil {
		return nil, err
	}
	return &troupev1.SessionServiceSearchMemoryResponse{Hits: memorywire.HitsToProto(hits)}, nil
}
