package api_test

import (
	"bytes"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"

	"github.com/troupe-dev/troupe/internal/grpcfailure"
	"github.com/troupe-dev/troupe/internal/memoryrpc"
	"github.com/troupe-dev/troupe/internal/transfer"
	"github.com/troupe-dev/troupe/pkg/failure"
	troupev1 "github.com/troupe-dev/troupe/pkg/gen/troupe/v1"
	"github.com/troupe-dev/troupe/pkg/memory"
)

// beginTurn returns the lease of a new turn.
func beginTurn(t *testing.T, s *memoryrpc.Store) memory.Lease {
	t.Helper()
	begun, err := s.BeginTurn(t.Context(), newBeginRequest())
	require.NoError(t, err)
	return memory.Lease{Ref: newBeginRequest().Ref, TurnID: begun.Turn.ID, Epoch: begun.Turn.Epoch}
}

func section(content []byte) *io.SectionReader {
	return io.NewSectionReader(bytes.NewReader(content), 0, int64(len(content)))
}

func randomBytes(t *testing.T, size int) []byte {
	t.Helper()
	content := make([]byte, size)
	_, err := rand.Read(content)
	require.NoError(t, err)
	return content
}

// Req: LP-22
func TestServer_TransfersArtifactsOfEverySize(t *testing.T) {
	far, _ := serveStore(t)
	h := beginTurn(t, far)
	for _, size := range []int{0, 1, memory.ArtifactChunk - 1, memory.ArtifactChunk, memory.ArtifactChunk + 1, 5<<20 + 7} {
		content := randomBytes(t, size)
		put, err := transfer.Upload(t.Context(), far, h, memory.Artifact{Name: "report", MediaType: "application/pdf"}, section(content))
		require.NoError(t, err)
		require.EqualValues(t, size, put.Size)
		again, err := transfer.Upload(t.Context(), far, h, memory.Artifact{Name: "report"}, section(content))
		require.NoError(t, err)
		require.Equal(t, put.Version, again.Version, "the same content makes no new version")
		var got bytes.Buffer
		read, err := transfer.Download(t.Context(), far, h.Ref, "report", put.Version, &got)
		require.NoError(t, err)
		require.Equal(t, put, read)
		require.True(t, bytes.Equal(content, got.Bytes()))
	}
}

// countingConn counts the calls made over a connection.
type countingConn struct {
	grpc.ClientConnInterface
	calls, streams int
}

func (c *countingConn) Invoke(ctx context.Context, method string, args, reply any, opts ...grpc.CallOption) error {
	c.calls++
	return c.ClientConnInterface.Invoke(ctx, method, args, reply, opts...)
}

func (c *countingConn) NewStream(ctx context.Context, desc *grpc.StreamDesc, method string, opts ...grpc.CallOption) (grpc.ClientStream, error) {
	c.streams++
	return c.ClientConnInterface.NewStream(ctx, desc, method, opts...)
}

func TestServer_UploadsContentInOneStream(t *testing.T) {
	conn, _ := dialServer(t)
	h := beginTurn(t, memoryrpc.New(conn))
	seen := &countingConn{ClientConnInterface: conn}
	far := memoryrpc.New(seen)
	content := randomBytes(t, 5*memory.ArtifactChunk+1)
	put, err := transfer.Upload(t.Context(), far, h, memory.Artifact{Name: "report"}, section(content))
	require.NoError(t, err)
	require.Equal(t, []int{0, 1}, []int{seen.calls, seen.streams}, "calls and streams of an upload")
	var got bytes.Buffer
	_, err = transfer.Download(t.Context(), far, h.Ref, "report", put.Version, &got)
	require.NoError(t, err)
	require.True(t, bytes.Equal(content, got.Bytes()))
	require.Equal(t, []int{0, 2}, []int{seen.calls, seen.streams}, "calls and streams with a download")

	_, err = transfer.Download(t.Context(), far, h.Ref, "other", 0, io.Discard)
	require.Equal(t, failure.NotFound, failure.ModeOf(err))
	_, err = transfer.Download(t.Context(), far, h.Ref, "report", 0, fullBuffer{})
	require.Equal(t, failure.SystemDisk, failure.ModeOf(err))
	require.ErrorIs(t, err, errFull)
	h.Epoch++
	_, err = transfer.Upload(t.Context(), far, h, memory.Artifact{Name: "report"}, section(content))
	require.Equal(t, failure.Fenced, failure.ModeOf(err))
}

// Two callers may upload the same content at the same time. One of them finds the bytes that the other has stored,
// and continues after them.
func TestServer_ConcurrentUploadsShareContent(t *testing.T) {
	far, _ := serveStore(t)
	h := beginTurn(t, far)
	content := randomBytes(t, 8*memory.ArtifactChunk)
	var all sync.WaitGroup
	for range 2 {
		all.Go(func() {
			_, err := transfer.Upload(t.Context(), far, h, memory.Artifact{Name: "report"}, section(content))
			if !failure.Is(err, failure.BaseMismatch) { // a few times only
				require.NoError(t, err)
			}
		})
	}
	all.Wait()
	var got bytes.Buffer
	_, err := transfer.Download(t.Context(), far, h.Ref, "report", 0, &got)
	require.NoError(t, err)
	require.True(t, bytes.Equal(content, got.Bytes()))
}

// fullBuffer is a writer that rejects every write.
type fullBuffer struct{}

var errFull = errors.New("full")

func (fullBuffer) Write([]byte) (int, error) { return 0, errFull }

// An interrupted upload can be resumed over another connection.
func TestServer_ResumesAnUpload(t *testing.T) {
	far, near := serveStore(t)
	h := beginTurn(t, far)
	content := randomBytes(t, 3*memory.ArtifactChunk)
	sum := sha256.Sum256(content)
	c := memory.Content{SHA256: hex.EncodeToString(sum[:]), Size: int64(len(content))}
	require.NoError(t, far.AppendArtifact(t.Context(), h, c, 0, content[:memory.ArtifactChunk]))
	at := h
	at.Ref.Tenant = "default"
	stored, err := near.StageArtifact(t.Context(), at, c)
	require.NoError(t, err)
	require.EqualValues(t, memory.ArtifactChunk, stored)
	_, err = far.PutArtifact(t.Context(), h, memory.Artifact{Name: "report", Content: c})
	require.Equal(t, failure.BaseMismatch, failure.ModeOf(err))
	put, err := transfer.Upload(t.Context(), far, h, memory.Artifact{Name: "report"}, section(content))
	require.NoError(t, err)
	require.Equal(t, c, put.Content)
}

// PutArtifact reports the number of stored bytes after each item. Only a completed upload creates a version.
func TestServer_PutArtifactReportsStoredBytes(t *testing.T) {
	far, _, raw := serveStoreWithClient(t)
	h := beginTurn(t, far)
	content := randomBytes(t, memory.ArtifactChunk+1)
	sum := sha256.Sum256(content)
	header := &troupev1.PutArtifactRequest{Item: &troupev1.PutArtifactRequest_Header{Header: &troupev1.PutArtifactHeader{
		SessionId: h.Ref.Session, TurnId: h.TurnID, Epoch: h.Epoch,
		Artifact: &troupev1.Artifact{Name: "report", Size: int64(len(content)), Sha256: hex.EncodeToString(sum[:])},
	}}}
	chunk := func(b []byte) *troupev1.PutArtifactRequest {
		return &troupev1.PutArtifactRequest{Item: &troupev1.PutArtifactRequest_Chunk{Chunk: b}}
	}
	begin := func(first *troupev1.PutArtifactRequest) troupev1.MemoryService_PutArtifactClient {
		ctx, cancel := context.WithCancel(t.Context())
		t.Cleanup(cancel)
		put, err := raw.PutArtifact(ctx)
		require.NoError(t, err)
		require.NoError(t, put.Send(first))
		return put
	}
	next := func(put troupev1.MemoryService_PutArtifactClient) *troupev1.PutArtifactResponse {
		r, err := put.Recv()
		require.NoError(t, err)
		return r
	}
	put := begin(header)
	require.Zero(t, next(put).GetOffset())
	require.NoError(t, put.Send(chunk(content[:memory.ArtifactChunk])))
	require.EqualValues(t, memory.ArtifactChunk, next(put).GetOffset())
	require.NoError(t, put.Send(chunk(content[memory.ArtifactChunk:])))
	require.EqualValues(t, len(content), next(put).GetOffset())
	require.NoError(t, put.CloseSend())
	require.EqualValues(t, 1, next(put).GetArtifact().GetVersion())
	_, err := put.Recv()
	require.ErrorIs(t, err, io.EOF)

	for name, items := range map[string][]*troupev1.PutArtifactRequest{
		"a chunk comes first":  {chunk([]byte("a"))},
		"a header comes again": {header, header},
		"an empty chunk":       {header, chunk(nil)},
		"a chunk too much":     {header, chunk([]byte("a"))},
	} {
		t.Run(name, func(t *testing.T) {
			put := begin(items[0])
			for _, item := range items[1:] {
				next(put)
				require.NoError(t, put.Send(item))
			}
			_, err := put.Recv()
			require.Equal(t, failure.UserInvalidInput, failure.ModeOf(grpcfailure.FromStatus("test", err)), "error: %v", err)
		})
	}
}

func TestServer_GetArtifactStartsAtTheOffset(t *testing.T) {
	far, _, raw := serveStoreWithClient(t)
	h := beginTurn(t, far)
	content := randomBytes(t, memory.ArtifactChunk+100)
	_, err := transfer.Upload(t.Context(), far, h, memory.Artifact{Name: "report"}, section(content))
	require.NoError(t, err)
	for _, offset := range []int64{0, 1, memory.ArtifactChunk - 1, memory.ArtifactChunk, memory.ArtifactChunk + 99, memory.ArtifactChunk + 100, 1 << 40} {
		get, err := raw.GetArtifact(t.Context(), &troupev1.MemoryServiceGetArtifactRequest{SessionId: h.Ref.Session, Name: "report", Offset: offset})
		require.NoError(t, err)
		first, err := get.Recv()
		require.NoError(t, err)
		require.EqualValues(t, len(content), first.GetArtifact().GetSize())
		var got []byte
		for {
			r, err := get.Recv()
			if errors.Is(err, io.EOF) {
				break
			}
			require.NoError(t, err)
			got = append(got, r.GetChunk()...)
		}
		require.True(t, bytes.Equal(content[min(offset, int64(len(content))):], got), "from %d", offset)
	}
}
