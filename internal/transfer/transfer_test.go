package transfer_test

import (
	"bytes"
	"errors"
	"io"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/troupe-dev/troupe/internal/transfer"
	"github.com/troupe-dev/troupe/pkg/conversation"
	"github.com/troupe-dev/troupe/pkg/failure"
	"github.com/troupe-dev/troupe/pkg/memory"
	"github.com/troupe-dev/troupe/pkg/memory/inmem"
	"github.com/troupe-dev/troupe/pkg/session"
)

// An invalid name is rejected before the content is read, so nothing is sent.
func TestUpload_RejectsAnInvalidNameBeforeItReads(t *testing.T) {
	store := inmem.New(inmem.Config{})
	h := beginTurn(t, store)
	_, err := transfer.Upload(t.Context(), store, h, memory.Artifact{Name: "dir/report"}, io.NewSectionReader(unreadableFile{}, 0, 10))
	require.ErrorContains(t, err, "no /")
	all, err := store.ListArtifacts(t.Context(), h.Ref)
	require.NoError(t, err)
	require.Empty(t, all)
}

func beginTurn(t *testing.T, store memory.Store) memory.Lease {
	t.Helper()
	ref := session.Ref{Tenant: "default", Session: "s1"}
	begun, err := store.BeginTurn(t.Context(), memory.Begin{
		Ref: ref, TurnID: "t1", TraceID: "0af7651916cd43dd8448eb211c80319c", Fingerprint: "f",
		Message: conversation.User("hello"), LeaseTTL: time.Minute, Window: 1,
	})
	require.NoError(t, err)
	return memory.Lease{Ref: ref, TurnID: "t1", Epoch: begun.Turn.Epoch}
}

func sectionReader(content []byte) *io.SectionReader {
	return io.NewSectionReader(bytes.NewReader(content), 0, int64(len(content)))
}

// Req: LP-22
func TestDownload_ReturnsTheUploadedContent(t *testing.T) {
	store := inmem.New(inmem.Config{})
	h := beginTurn(t, store)
	for i, size := range []int{0, 1, memory.ArtifactChunk, memory.ArtifactChunk + 1} {
		content := bytes.Repeat([]byte{byte('a' + i)}, size)
		put, err := transfer.Upload(t.Context(), store, h, memory.Artifact{Name: "report", MediaType: "text/plain"}, sectionReader(content))
		require.NoError(t, err)
		require.Equal(t, i+1, put.Version)
		var got bytes.Buffer
		read, err := transfer.Download(t.Context(), store, h.Ref, "report", 0, &got)
		require.NoError(t, err)
		require.Equal(t, put, read)
		require.True(t, bytes.Equal(content, got.Bytes()))
	}
}

func TestUpload_RejectsOversizedContent(t *testing.T) {
	store := inmem.New(inmem.Config{})
	_, err := transfer.Upload(t.Context(), store, beginTurn(t, store), memory.Artifact{Name: "report"}, io.NewSectionReader(unreadableFile{}, 0,
		memory.MaxArtifactBytes+1))
	require.Equal(t, failure.UserInvalidInput, failure.ModeOf(err))
	require.ErrorContains(t, err, "67108864")
}

// unreadableFile is a file whose reads and writes fail.
type unreadableFile struct{}

var errBroken = errors.New("broken")

func (unreadableFile) ReadAt([]byte, int64) (int, error) { return 0, errBroken }

func (unreadableFile) Write([]byte) (int, error) { return 0, errBroken }

func TestTransfer_ReportsReadAndWriteErrors(t *testing.T) {
	store := inmem.New(inmem.Config{})
	h := beginTurn(t, store)
	_, err := transfer.Upload(t.Context(), store, h, memory.Artifact{Name: "report"}, io.NewSectionReader(unreadableFile{}, 0, 10))
	require.Equal(t, failure.UserInvalidInput, failure.ModeOf(err))
	require.ErrorIs(t, err, errBroken)
	_, err = transfer.Upload(t.Context(), store, h, memory.Artifact{Name: "report"}, sectionReader([]byte("hello")))
	require.NoError(t, err)
	_, err = transfer.Download(t.Context(), store, h.Ref, "report", 0, unreadableFile{})
	require.Equal(t, failure.SystemDisk, failure.ModeOf(err))
	_, err = transfer.Download(t.Context(), store, h.Ref, "other", 0, io.Discard)
	require.Equal(t, failure.NotFound, failure.ModeOf(err))
}
