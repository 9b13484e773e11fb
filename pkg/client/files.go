package client

import (
	"cmp"
	"errors"
	"io"
	"mime"
	"net/http"
	"os"
	"path/filepath"

	"github.com/troupe-dev/troupe/internal/wire"
	"github.com/troupe-dev/troupe/pkg/conversation"
	"github.com/troupe-dev/troupe/pkg/failure"
	troupev1 "github.com/troupe-dev/troupe/pkg/gen/troupe/v1"
)

// Files reads files into the parts of an OrchestrateRequest. A part is named after the last element of its path.
// The media type follows from the file name extension, or from the content if the extension is unknown. At most 8
// files are allowed, with 1 MiB each and 3 MiB in total. Modes: user_invalid_input.
func Files(paths ...string) ([]*troupev1.Part, error) {
	const op = "client.Files"
	files, total := make([]conversation.Attachment, len(paths)), 0
	for i, path := range paths {
		data, err := readLimited(path)
		if err != nil {
			return nil, failure.Newf(failure.UserInvalidInput, op, "file %s cannot be read: %s", path, errorWithoutPath(err)).Because(err)
		}
		if len(data) > conversation.MaxAttachmentBytes {
			return nil, failure.Newf(failure.UserInvalidInput, op,
				"file %s has more than %d bytes, which is as much as a file may have; send less of it", path, conversation.MaxAttachmentBytes)
		}
		total += len(data)
		name := filepath.Base(path)
		files[i] = conversation.Attachment{
			Name: name, Size: int64(len(data)), Data: data,
			MediaType: cmp.Or(mime.TypeByExtension(filepath.Ext(name)), http.DetectContentType(data)),
		}
	}
	if len(files) > conversation.MaxAttachments || total > conversation.MaxAttachedBytes {
		return nil, failure.Newf(failure.UserInvalidInput, op,
			"%d files of %d bytes are too many; at most %d of %d bytes go with one request, so send the others with the next of the session",
			len(files), total, conversation.MaxAttachments, conversation.MaxAttachedBytes)
	}
	return wire.AttachmentsToProto(files), nil
}

// readLimited returns the content of a file, but at most one byte more than the limit. The additional byte shows
// that the file is too large.
func readLimited(path string) ([]byte, error) {
	f, err := os.Open(path) //nolint:gosec // the caller names what it sends
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }()
	return io.ReadAll(io.LimitReader(f, conversation.MaxAttachmentBytes+1))
}

// errorWithoutPath returns the text of err without the path of the file.
func errorWithoutPath(err error) string {
	if path, ok := errors.AsType[*os.PathError](err); ok {
		return path.Err.Error()
	}
	return err.Error()
}
