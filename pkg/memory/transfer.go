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

// Upload makes a content the next version of an artifact, of which only the name and the
// media type are needed. What is stored already is not sent again, so that an upload that
// broke off may be repeated. The content is read twice, in pieces. Modes: as those of
// PutArtifact and AppendArtifact, user_invalid_input above MaxArtifactBytes.
func Upload(ctx context.Context, store Artifacts, h Hold, a Artifact, content *io.SectionReader) (Artifact, error) {
	const op = "memory.Upload"
	if content.Size() > MaxArtifactBytes {
		return Artifact{}, failure.Newf(failure.UserInvalidInput, op, "artifact %q: %d bytes are too many; an artifact has at most %d", a.Name, content.Size(), MaxArtifactBytes).
			With("name", a.Name)
	}
	digest := sha256.New()
	if _, err := io.Copy(digest, io.NewSectionReader(content, 0, content.Size())); err != nil {
		return Artifact{}, unread(op, a.Name, err)
	}
	a.Content = Content{SHA256: hex.EncodeToString(digest.Sum(nil)), Size: content.Size()}
	var err error
	for range transferRounds {
		if err = send(ctx, store, h, a, content); err == nil {
			var put Artifact
			if put, err = store.PutArtifact(ctx, h, a); err == nil {
				return put, nil
			}
		}
		if !failure.Is(err, failure.BaseMismatch) {
			break
		}
	}
	return Artifact{}, err
}

// send stores what is missing of a content.
func send(ctx context.Context, store Artifacts, h Hold, a Artifact, content io.ReaderAt) error {
	offset, err := store.StageArtifact(ctx, h, a.Content)
	piece := make([]byte, min(ArtifactChunk, a.Size))
	for err == nil && offset < a.Size {
		n := min(ArtifactChunk, a.Size-offset)
		if _, failed := content.ReadAt(piece[:n], offset); failed != nil && !errors.Is(failed, io.EOF) {
			return unread("memory.Upload", a.Name, failed)
		}
		err = store.AppendArtifact(ctx, h, a.Content, offset, piece[:n])
		offset += n
	}
	return err
}

// Download writes the content of an artifact's version, 0 for the latest, and returns what
// it is. Modes: as those of ReadArtifact; system_disk when what was read does not have the
// digest.
func Download(ctx context.Context, store Artifacts, ref session.Ref, name string, version int, to io.Writer) (Artifact, error) {
	const op = "memory.Download"
	a, err := store.GetArtifact(ctx, ref, name, version)
	if err != nil {
		return Artifact{}, err
	}
	digest := sha256.New()
	for offset := int64(0); offset < a.Size; {
		piece, err := store.ReadArtifact(ctx, ref, a.Content, offset)
		if err != nil {
			return Artifact{}, err
		}
		if len(piece) == 0 {
			break
		}
		if _, err := io.MultiWriter(digest, to).Write(piece); err != nil {
			return Artifact{}, failure.Newf(failure.SystemDisk, op, "artifact %q: what was read could not be written", name).Because(err)
		}
		offset += int64(len(piece))
	}
	if hex.EncodeToString(digest.Sum(nil)) != a.SHA256 {
		return Artifact{}, failure.Newf(failure.SystemDisk, op, "artifact %q: the bytes that were read do not have its digest; do not use them", name).
			With("name", name).With("sha256", a.SHA256)
	}
	return a, nil
}

func unread(op, name string, cause error) error {
	return failure.Newf(failure.UserInvalidInput, op, "artifact %q: its content cannot be read", name).With("name", name).Because(cause)
}
