package memory

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io"

	"github.com/troupe-dev/troupe/pkg/failure"
	"github.com/troupe-dev/troupe/pkg/session"
)

// transferRounds bounds how often an upload begins anew because somebody else stores the
// same content.
const transferRounds = 3

// Carrier is implemented by stores that carry a content from end to end at less cost than
// piece by piece. Upload and Download look for it.
type Carrier interface {
	// Send stores what is missing of a content and makes it the next version of the artifact,
	// whose digest and size are set. Modes: as those of AppendArtifact and PutArtifact;
	// user_invalid_input when the content cannot be read.
	Send(ctx context.Context, h Hold, a Artifact, content io.ReaderAt) (Artifact, error)
	// Receive writes the content of a version, 0 for the latest, and returns what it is. The
	// digest is for the caller to check. Modes: as those of GetArtifact and ReadArtifact; an
	// error of the writer is returned as it is.
	Receive(ctx context.Context, ref session.Ref, name string, version int, to io.Writer) (Artifact, error)
}

// Upload makes a content the next version of an artifact, of which only the name and the
// media type are needed. What is stored already is not sent again, so that an upload that
// broke off may be repeated. The content is read twice, in pieces. Modes: as those of
// PutArtifact and AppendArtifact, user_invalid_input above MaxArtifactBytes. What has a name
// that none may have is not sent.
func Upload(ctx context.Context, store Artifacts, h Hold, a Artifact, content *io.SectionReader) (Artifact, error) {
	const op = "memory.Upload"
	if err := CheckArtifactName(op, a.Name); err != nil {
		return Artifact{}, err
	}
	if content.Size() > MaxArtifactBytes {
		return Artifact{}, failure.Newf(failure.UserInvalidInput, op, "artifact %q: %d bytes are too many; an artifact has at most %d", a.Name, content.Size(), MaxArtifactBytes).
			With("name", a.Name)
	}
	digest := sha256.New()
	if _, err := io.Copy(digest, io.NewSectionReader(content, 0, content.Size())); err != nil {
		return Artifact{}, unread(op, a.Name, err)
	}
	a.Content = Content{SHA256: hex.EncodeToString(digest.Sum(nil)), Size: content.Size()}
	carrier := carrierOf(store)
	var put Artifact
	var err error
	for range transferRounds {
		if put, err = carrier.Send(ctx, h, a, content); err == nil {
			return put, nil
		}
		if !failure.Is(err, failure.BaseMismatch) {
			break
		}
	}
	return Artifact{}, err
}

// Download writes the content of an artifact's version, 0 for the latest, and returns what
// it is. Modes: as those of ReadArtifact; system_disk when what was read does not have the
// digest, or cannot be written.
func Download(ctx context.Context, store Artifacts, ref session.Ref, name string, version int, to io.Writer) (Artifact, error) {
	const op = "memory.Download"
	digest, written := sha256.New(), &writing{to: to}
	a, err := carrierOf(store).Receive(ctx, ref, name, version, io.MultiWriter(digest, written))
	switch {
	case written.err != nil:
		return Artifact{}, failure.Newf(failure.SystemDisk, op, "artifact %q: what was read could not be written", name).Because(written.err)
	case err != nil:
		return Artifact{}, err
	case hex.EncodeToString(digest.Sum(nil)) != a.SHA256:
		return Artifact{}, failure.Newf(failure.SystemDisk, op, "artifact %q: the bytes that were read do not have its digest; do not use them", name).
			With("name", name).With("sha256", a.SHA256)
	}
	return a, nil
}

// writing keeps the error of a writer.
type writing struct {
	to  io.Writer
	err error
}

func (w *writing) Write(b []byte) (n int, err error) {
	n, w.err = w.to.Write(b)
	return n, w.err
}

// carrierOf is the store, or what carries piece by piece for it.
func carrierOf(store Artifacts) Carrier {
	if carrier, ok := store.(Carrier); ok {
		return carrier
	}
	return pieces{store}
}

// pieces carries with a call for each piece.
type pieces struct{ store Artifacts }

// Send implements Carrier.
func (p pieces) Send(ctx context.Context, h Hold, a Artifact, content io.ReaderAt) (Artifact, error) {
	offset, err := p.store.StageArtifact(ctx, h, a.Content)
	for err == nil && offset < a.Size {
		var piece []byte
		if piece, err = Piece(content, a, offset); err == nil {
			err = p.store.AppendArtifact(ctx, h, a.Content, offset, piece)
		}
		offset += int64(len(piece))
	}
	if err != nil {
		return Artifact{}, err
	}
	return p.store.PutArtifact(ctx, h, a)
}

// Receive implements Carrier.
func (p pieces) Receive(ctx context.Context, ref session.Ref, name string, version int, to io.Writer) (Artifact, error) {
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

// Piece reads the piece of an artifact's content at the offset. Modes: user_invalid_input.
func Piece(content io.ReaderAt, a Artifact, offset int64) ([]byte, error) {
	piece := make([]byte, min(ArtifactChunk, a.Size-offset))
	if _, err := content.ReadAt(piece, offset); err != nil && !errors.Is(err, io.EOF) {
		return nil, unread("memory.Upload", a.Name, err)
	}
	return piece, nil
}

func unread(op, name string, cause error) error {
	return failure.Newf(failure.UserInvalidInput, op, "artifact %q: its content cannot be read", name).With("name", name).Because(cause)
}
