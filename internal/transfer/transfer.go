// Package transfer uploads and downloads the content of artifacts.
package transfer

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io"

	"github.com/troupe-dev/troupe/pkg/failure"
	"github.com/troupe-dev/troupe/pkg/memory"
	"github.com/troupe-dev/troupe/pkg/session"
)

// maxAttempts bounds the attempts of one upload. An upload starts again after another writer stored part of the
// same content.
const maxAttempts = 3

// Streamer is implemented by a store that can transfer a whole content on one stream. Upload and Download prefer
// it to one call for each piece.
type Streamer interface {
	// SendArtifact stores the missing bytes of a content and makes it the next version of the artifact. The digest
	// and size of a must be set. Modes: the modes of AppendArtifact and PutArtifact, and user_invalid_input when
	// the content cannot be read.
	SendArtifact(ctx context.Context, h memory.Lease, a memory.Artifact, content io.ReaderAt) (memory.Artifact, error)
	// ReceiveArtifact writes the content of a version (0 means the latest) and returns its description.
	// The caller checks the digest. Modes: the modes of GetArtifact and ReadArtifact; an error of the writer
	// is returned unchanged.
	ReceiveArtifact(ctx context.Context, ref session.Ref, name string, version int, to io.Writer) (memory.Artifact, error)
}

// Upload stores content as the next version of an artifact. Only the artifact's name and media type need to be
// set. Upload sends only bytes that are not stored yet, so an interrupted upload can be repeated cheaply. It reads
// the content twice, in pieces. It sends nothing if the name is invalid. Modes: the modes of PutArtifact and
// AppendArtifact, and user_invalid_input above MaxArtifactBytes.
func Upload(ctx context.Context, store memory.Artifacts, h memory.Lease, a memory.Artifact, content *io.SectionReader) (memory.Artifact, error) {
	const op = "memory.Upload"
	if err := memory.CheckArtifactName(op, a.Name); err != nil {
		return memory.Artifact{}, err
	}
	if content.Size() > memory.MaxArtifactBytes {
		return memory.Artifact{}, failure.Newf(failure.UserInvalidInput, op,
			"artifact %q: %d bytes are too many; an artifact has at most %d", a.Name, content.Size(), memory.MaxArtifactBytes).
			With("name", a.Name)
	}
	digest := sha256.New()
	if _, err := io.Copy(digest, io.NewSectionReader(content, 0, content.Size())); err != nil {
		return memory.Artifact{}, newUnreadableContentError(op, a.Name, err)
	}
	a.Content = memory.Content{SHA256: hex.EncodeToString(digest.Sum(nil)), Size: content.Size()}
	streamer := streamerFor(store)
	var put memory.Artifact
	var err error
	for range maxAttempts {
		if put, err = streamer.SendArtifact(ctx, h, a, content); err == nil {
			return put, nil
		}
		if !failure.Is(err, failure.BaseMismatch) {
			break
		}
	}
	return memory.Artifact{}, err
}

// Download writes the content of an artifact version to a writer (version 0 means the latest) and returns the
// artifact's description. Modes: the modes of ReadArtifact, and system_disk if the digest does not match or the
// content cannot be written.
func Download(ctx context.Context, store memory.Artifacts, ref session.Ref, name string, version int, to io.Writer) (memory.Artifact, error) {
	const op = "memory.Download"
	digest, written := sha256.New(), &errorWriter{to: to}
	a, err := streamerFor(store).ReceiveArtifact(ctx, ref, name, version, io.MultiWriter(digest, written))
	switch {
	case written.err != nil:
		return memory.Artifact{}, failure.Newf(failure.SystemDisk, op, "artifact %q: the content could not be written", name).Because(written.err)
	case err != nil:
		return memory.Artifact{}, err
	case hex.EncodeToString(digest.Sum(nil)) != a.SHA256:
		return memory.Artifact{}, failure.Newf(failure.SystemDisk, op, "artifact %q: the bytes that were read do not have its digest; do not use them", name).
			With("name", name).With("sha256", a.SHA256)
	}
	return a, nil
}

// errorWriter remembers the error of a writer.
type errorWriter struct {
	to  io.Writer
	err error
}

func (w *errorWriter) Write(b []byte) (n int, err error) {
	n, w.err = w.to.Write(b)
	return n, w.err
}

// streamerFor returns the store if it is a Streamer, and otherwise a pieceStreamer for it.
func streamerFor(store memory.Artifacts) Streamer {
	if streamer, ok := store.(Streamer); ok {
		return streamer
	}
	return pieceStreamer{store}
}

// pieceStreamer implements Streamer for a store that has no streams, with one call for each piece.
type pieceStreamer struct{ store memory.Artifacts }

// SendArtifact implements Streamer.
func (p pieceStreamer) SendArtifact(ctx context.Context, h memory.Lease, a memory.Artifact, content io.ReaderAt) (memory.Artifact, error) {
	offset, err := p.store.StageArtifact(ctx, h, a.Content)
	for err == nil && offset < a.Size {
		var piece []byte
		if piece, err = ReadPiece(content, a, offset); err == nil {
			err = p.store.AppendArtifact(ctx, h, a.Content, offset, piece)
		}
		offset += int64(len(piece))
	}
	if err != nil {
		return memory.Artifact{}, err
	}
	return p.store.PutArtifact(ctx, h, a)
}

// ReceiveArtifact implements Streamer.
func (p pieceStreamer) ReceiveArtifact(ctx context.Context, ref session.Ref, name string, version int, to io.Writer) (memory.Artifact, error) {
	a, err := p.store.GetArtifact(ctx, ref, name, version)
	for offset := int64(0); err == nil && offset < a.Size; {
		var piece []byte
		if piece, err = p.store.ReadArtifact(ctx, ref, a.Content, offset); err != nil || len(piece) == 0 {
			break
		}
		_, err = to.Write(piece)
		offset += int64(len(piece))
	}
	return a, err
}

// ReadPiece reads the piece of an artifact's content that begins at the offset. Modes: user_invalid_input.
func ReadPiece(content io.ReaderAt, a memory.Artifact, offset int64) ([]byte, error) {
	piece := make([]byte, min(memory.ArtifactChunk, a.Size-offset))
	if _, err := content.ReadAt(piece, offset); err != nil && !errors.Is(err, io.EOF) {
		return nil, newUnreadableContentError("memory.Upload", a.Name, err)
	}
	return piece, nil
}

func newUnreadableContentError(op, name string, cause error) error {
	return failure.Newf(failure.UserInvalidInput, op, "artifact %q: its content cannot be read", name).With("name", name).Because(cause)
}
