package memoryrpc

import (
	"context"
	"errors"
	"io"
	"slices"

	"github.com/troupe-dev/troupe/internal/grpcfailure"
	"github.com/troupe-dev/troupe/internal/rpc"
	"github.com/troupe-dev/troupe/internal/transfer"
	"github.com/troupe-dev/troupe/internal/wire/memorywire"
	"github.com/troupe-dev/troupe/pkg/failure"
	troupev1 "github.com/troupe-dev/troupe/pkg/gen/troupe/v1"
	"github.com/troupe-dev/troupe/pkg/memory"
	"github.com/troupe-dev/troupe/pkg/session"
)

// stagedName is the name of an artifact whose content is only staged: it has no version yet.
const stagedName = "staged"

// StageArtifact implements memory.Artifacts.
func (s *artifacts) StageArtifact(ctx context.Context, h memory.Lease, c memory.Content) (int64, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	_, stored, err := s.beginUpload(ctx, "memory.StageArtifact", h, memory.Artifact{Content: c, Name: stagedName})
	return stored, err
}

// AppendArtifact implements memory.Artifacts.
func (s *artifacts) AppendArtifact(ctx context.Context, h memory.Lease, c memory.Content, offset int64, piece []byte) error {
	const op = "memory.AppendArtifact"
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	put, stored, err := s.beginUpload(ctx, op, h, memory.Artifact{Content: c, Name: stagedName})
	if err != nil {
		return err
	}
	if next, err := c.CheckPiece(op, stored, offset, piece); !next {
		return err
	}
	_, err = sendChunk(op, put, piece)
	return err
}

// PutArtifact implements memory.Artifacts.
func (s *artifacts) PutArtifact(ctx context.Context, h memory.Lease, a memory.Artifact) (memory.Artifact, error) {
	const op = "memory.PutArtifact"
	if err := memory.CheckArtifactName(op, a.Name); err != nil {
		return memory.Artifact{}, err
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	put, _, err := s.beginUpload(ctx, op, h, a)
	if err != nil {
		return memory.Artifact{}, err
	}
	return finishUpload(op, put) // the service checks that the content is complete
}

// SendArtifact implements transfer.Streamer. It sends all pieces on one stream.
func (s *artifacts) SendArtifact(ctx context.Context, h memory.Lease, a memory.Artifact, content io.ReaderAt) (memory.Artifact, error) {
	const op = "memory.Upload"
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	put, stored, err := s.beginUpload(ctx, op, h, a)
	for err == nil && stored < a.Size {
		var piece []byte
		if piece, err = transfer.ReadPiece(content, a, stored); err == nil {
			stored, err = sendChunk(op, put, piece)
		}
	}
	if err != nil {
		return memory.Artifact{}, err
	}
	return finishUpload(op, put)
}

// sendChunk sends one piece and returns how many bytes the service has stored so far.
func sendChunk(op string, put troupev1.MemoryService_PutArtifactClient, piece []byte) (int64, error) {
	// io.EOF means that the service has ended the stream. Recv returns the reason.
	err := put.Send(&troupev1.PutArtifactRequest{Item: &troupev1.PutArtifactRequest_Chunk{Chunk: piece}})
	if err != nil && !errors.Is(err, io.EOF) {
		return 0, grpcfailure.FromStatus(op, err)
	}
	r, err := put.Recv()
	if err != nil {
		return 0, grpcfailure.FromStatus(op, err)
	}
	return r.GetOffset(), nil
}

// finishUpload closes the stream, which makes the uploaded content a version of the artifact.
func finishUpload(op string, put troupev1.MemoryService_PutArtifactClient) (memory.Artifact, error) {
	if err := put.CloseSend(); err != nil {
		return memory.Artifact{}, grpcfailure.FromStatus(op, err)
	}
	r, err := put.Recv()
	if err != nil {
		return memory.Artifact{}, grpcfailure.FromStatus(op, err)
	}
	return memorywire.ArtifactFromProto(r.GetArtifact()), nil
}

// beginUpload opens a stream that uploads an artifact. It returns how many bytes are already stored. Canceling the
// caller's context ends the stream.
func (s *artifacts) beginUpload(ctx context.Context, op string, h memory.Lease, a memory.Artifact) (troupev1.MemoryService_PutArtifactClient, int64, error) {
	put, err := s.service.PutArtifact(rpc.WithTenant(ctx, h.Ref.Tenant))
	if err == nil {
		err = put.Send(&troupev1.PutArtifactRequest{Item: &troupev1.PutArtifactRequest_Header{Header: &troupev1.PutArtifactHeader{
			SessionId: h.Ref.Session, TurnId: h.TurnID, Epoch: h.Epoch, Artifact: memorywire.ArtifactToProto(a),
		}}})
	}
	if err != nil && !errors.Is(err, io.EOF) {
		return nil, 0, grpcfailure.FromStatus(op, err)
	}
	r, err := put.Recv()
	if err != nil {
		return nil, 0, grpcfailure.FromStatus(op, err)
	}
	return put, r.GetOffset(), nil
}

// GetArtifact implements memory.Artifacts.
func (s *artifacts) GetArtifact(ctx context.Context, ref session.Ref, name string, version int) (memory.Artifact, error) {
	const op = "memory.GetArtifact"
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	a, _, err := s.openDownload(ctx, op, ref, name, version, memory.MaxArtifactBytes)
	return a, err
}

// ReadArtifact implements memory.Artifacts. It makes two calls, because the service finds content only by the
// artifact that has it.
func (s *artifacts) ReadArtifact(ctx context.Context, ref session.Ref, c memory.Content, offset int64) ([]byte, error) {
	const op = "memory.ReadArtifact"
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	stored, err := s.ListArtifacts(ctx, ref)
	if err != nil {
		return nil, err
	}
	has := slices.IndexFunc(stored, func(a memory.Artifact) bool { return a.Content == c })
	if has < 0 {
		return nil, failure.Newf(failure.NotFound, op, "session %s has no artifact with the content %s; list its artifacts", ref.Session, c.SHA256).
			With("session_id", ref.Session).With("sha256", c.SHA256)
	}
	_, get, err := s.openDownload(ctx, op, ref, stored[has].Name, stored[has].Version, offset)
	if err != nil {
		return nil, err
	}
	r, err := get.Recv()
	if errors.Is(err, io.EOF) {
		return nil, nil
	} else if err != nil {
		return nil, grpcfailure.FromStatus(op, err)
	}
	return r.GetChunk(), nil
}

// ReceiveArtifact implements transfer.Streamer. It receives all pieces on one stream.
func (s *artifacts) ReceiveArtifact(ctx context.Context, ref session.Ref, name string, version int, to io.Writer) (memory.Artifact, error) {
	const op = "memory.Download"
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	a, get, err := s.openDownload(ctx, op, ref, name, version, 0)
	if err != nil {
		return memory.Artifact{}, err
	}
	for {
		r, err := get.Recv()
		if errors.Is(err, io.EOF) {
			return a, nil
		} else if err != nil {
			return memory.Artifact{}, grpcfailure.FromStatus(op, err)
		}
		if _, err := to.Write(r.GetChunk()); err != nil {
			return memory.Artifact{}, err
		}
	}
}

// openDownload opens a stream that reads an artifact from the offset, and returns the artifact's description.
// Canceling the caller's context ends the stream.
func (s *artifacts) openDownload(ctx context.Context, op string, ref session.Ref, name string, version int, offset int64) (memory.Artifact,
	troupev1.MemoryService_GetArtifactClient, error,
) {
	get, err := s.service.GetArtifact(rpc.WithTenant(ctx, ref.Tenant), &troupev1.MemoryServiceGetArtifactRequest{
		SessionId: ref.Session, Name: name, Version: int32(version), Offset: offset,
	})
	if err != nil {
		return memory.Artifact{}, nil, grpcfailure.FromStatus(op, err)
	}
	r, err := get.Recv()
	if err != nil {
		return memory.Artifact{}, nil, grpcfailure.FromStatus(op, err)
	}
	return memorywire.ArtifactFromProto(r.GetArtifact()), get, nil
}

// ListArtifacts implements memory.Artifacts.
func (s *artifacts) ListArtifacts(ctx context.Context, ref session.Ref) ([]memory.Artifact, error) {
	r, err := s.service.ListArtifacts(rpc.WithTenant(ctx, ref.Tenant), &troupev1.MemoryServiceListArtifactsRequest{SessionId: ref.Session})
	if err != nil {
		return nil, grpcfailure.FromStatus("memory.ListArtifacts", err)
	}
	return memorywire.ArtifactsFromProto(r.GetArtifacts()), nil
}

// DeleteArtifact implements memory.Artifacts.
func (s *artifacts) DeleteArtifact(ctx context.Context, h memory.Lease, name string, version int) error {
	_, err := s.service.DeleteArtifact(rpc.WithTenant(ctx, h.Ref.Tenant), &troupev1.DeleteArtifactRequest{
		SessionId: h.Ref.Session, TurnId: h.TurnID, Epoch: h.Epoch, Name: name, Version: int32(version),
	})
	if err != nil {
		return grpcfailure.FromStatus("memory.DeleteArtifact", err)
	}
	return nil
}
