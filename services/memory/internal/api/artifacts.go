package api

import (
	"context"
	"errors"
	"io"

	"github.com/troupe-dev/troupe/internal/wire/memorywire"
	"github.com/troupe-dev/troupe/pkg/failure"
	troupev1 "github.com/troupe-dev/troupe/pkg/gen/troupe/v1"
	"github.com/troupe-dev/troupe/pkg/memory"
)

// PutArtifact implements troupev1.MemoryServiceServer. After the header and after each chunk it sends the number
// of stored bytes. It creates a version only when the caller closes its side of the stream. Otherwise the received
// bytes stay staged, so that the caller can continue later.
func (s *Server) PutArtifact(stream troupev1.MemoryService_PutArtifactServer) error {
	first, err := stream.Recv()
	if err != nil {
		return err
	}
	ctx := stream.Context() // after the first item, the context has the identity of the caller
	header := first.GetHeader()
	if header == nil {
		return failure.New(failure.UserInvalidInput, "memory.PutArtifact", "item: the first one must be the header; send it before any chunk").
			With("fields", "item")
	}
	h, a := leaseFromRequest(ctx, header), memorywire.ArtifactFromProto(header.GetArtifact())
	if err := memory.CheckArtifactName("memory.PutArtifact", a.Name); err != nil {
		return err // before any byte is stored
	}
	stored, err := s.store.StageArtifact(ctx, h, a.Content)
	for err == nil {
		if err := stream.Send(&troupev1.PutArtifactResponse{Item: &troupev1.PutArtifactResponse_Offset{Offset: stored}}); err != nil {
			return err
		}
		item, received := stream.Recv()
		if errors.Is(received, io.EOF) {
			break
		} else if received != nil {
			return received
		}
		if item.GetHeader() != nil {
			return failure.New(failure.UserInvalidInput, "memory.PutArtifact", "item: only the first one may be a header; send chunks, or begin another call").
				With("fields", "item")
		}
		err = s.store.AppendArtifact(ctx, h, a.Content, stored, item.GetChunk())
		stored += int64(len(item.GetChunk()))
	}
	if err != nil {
		return err
	}
	if a, err = s.store.PutArtifact(ctx, h, a); err != nil {
		return err
	}
	return stream.Send(&troupev1.PutArtifactResponse{Item: &troupev1.PutArtifactResponse_Artifact{Artifact: memorywire.ArtifactToProto(a)}})
}

// GetArtifact implements troupev1.MemoryServiceServer.
func (s *Server) GetArtifact(r *troupev1.MemoryServiceGetArtifactRequest, stream troupev1.MemoryService_GetArtifactServer) error {
	ctx := stream.Context()
	from := sessionRef(ctx, r.GetSessionId())
	a, err := s.store.GetArtifact(ctx, from, r.GetName(), int(r.GetVersion()))
	if err != nil {
		return err
	}
	err = stream.Send(&troupev1.MemoryServiceGetArtifactResponse{
		Item: &troupev1.MemoryServiceGetArtifactResponse_Artifact{Artifact: memorywire.ArtifactToProto(a)},
	})
	for offset := r.GetOffset(); err == nil && offset < a.Size; {
		piece, failed := s.store.ReadArtifact(ctx, from, a.Content, offset)
		if failed != nil || len(piece) == 0 {
			return failed
		}
		offset += int64(len(piece))
		err = stream.Send(&troupev1.MemoryServiceGetArtifactResponse{Item: &troupev1.MemoryServiceGetArtifactResponse_Chunk{Chunk: piece}})
	}
	return err
}

// ListArtifacts implements troupev1.MemoryServiceServer.
func (s *Server) ListArtifacts(ctx context.Context, r *troupev1.MemoryServiceListArtifactsRequest) (*troupev1.MemoryServiceListArtifactsResponse, error) {
	stored, err := s.store.ListArtifacts(ctx, sessionRef(ctx, r.GetSessionId()))
	if err != nil {
		return nil, err
	}
	return &troupev1.MemoryServiceListArtifactsResponse{Artifacts: memorywire.ArtifactsToProto(stored)}, nil
}

// DeleteArtifact implements troupev1.MemoryServiceServer.
func (s *Server) DeleteArtifact(ctx context.Context, r *troupev1.DeleteArtifactRequest) (*troupev1.DeleteArtifactResponse, error) {
	if err := s.store.DeleteArtifact(ctx, leaseFromRequest(ctx, r), r.GetName(), int(r.GetVersion())); err != nil {
		return nil, err
	}
	return &troupev1.DeleteArtifactResponse{}, nil
}
