package execute

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"

	"github.com/troupe-dev/troupe/internal/attachment"
	"github.com/troupe-dev/troupe/internal/loop/toolcall"
	"github.com/troupe-dev/troupe/pkg/conversation"
	"github.com/troupe-dev/troupe/pkg/failure"
	"github.com/troupe-dev/troupe/pkg/llm"
)

// storeFiles stores the files of a result as artifacts, so that the journal only needs their names and versions
// (CO-74). It returns the files with their versions. Without a memory service the files exist only in this run.
func storeFiles(ctx context.Context, c *toolcall.Call, files []conversation.Attachment) ([]conversation.Attachment, error) {
	const op = "loop.Run"
	files = describeFiles(c.Requested.Name, files)
	err := attachment.Check(op, "files", files)
	for i := range files {
		if err == nil {
			files[i].Version, err = c.Memory.SaveArtifact(ctx, files[i].Name, files[i].MediaType, files[i].Data)
		}
	}
	if errors.Is(err, errors.ErrUnsupported) {
		return files, nil
	}
	if failure.IsSuperseded(err) {
		c.FatalErr = err
	}
	if err != nil && ctx.Err() == nil {
		return nil, failure.Newf(failure.ModeOf(err), op, "%s did run, but its result cannot be used: %s", c.Requested.Name, failure.PlainMessage(err)).
			Because(err)
	}
	return files, err
}

// describeFiles returns a copy of the files with what the tool left out: the type that the content suggests, and a name
// that consists of the tool and the type.
func describeFiles(tool string, files []conversation.Attachment) []conversation.Attachment {
	files = slices.Clone(files)
	for i := range files {
		f := &files[i]
		f.MediaType, f.Size, f.Version = cmp.Or(f.MediaType, http.DetectContentType(f.Data)), int64(len(f.Data)), 0
		for n := 1; f.Name == ""; n++ {
			name := tool + extension(*f)
			if n > 1 {
				name = fmt.Sprint(tool, "_", n, extension(*f))
			}
			if !slices.ContainsFunc(files, func(other conversation.Attachment) bool { return other.Name == name }) {
				f.Name = name
			}
		}
	}
	return files
}

// extension returns the end of a file name for the media type, such as ".png" (empty if the type is invalid).
func extension(f conversation.Attachment) string {
	_, kind, _ := strings.Cut(llm.MediaType(f), "/")
	kind, _, _ = strings.Cut(kind, "+")
	switch kind {
	case "", "octet-stream":
		return ""
	case "plain":
		return ".txt"
	default:
		return "." + kind
	}
}

// loadFiles loads the files of a restored result, so that the model reads the same bytes again. A file that was deleted
// meanwhile stays without its content.
func loadFiles(ctx context.Context, c *toolcall.Call) error {
	for i := range c.Output.Attachments {
		f := &c.Output.Attachments[i]
		data, _, err := c.Memory.LoadArtifact(ctx, f.Name, f.Version)
		if err != nil && !failure.Is(err, failure.NotFound) {
			return err
		}
		f.Data = data
	}
	return nil
}
