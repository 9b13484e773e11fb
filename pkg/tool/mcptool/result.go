package mcptool

import (
	"encoding/json"
	"fmt"
	"path"
	"slices"
	"strings"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/troupe-dev/troupe/internal/attachment"
	"github.com/troupe-dev/troupe/pkg/conversation"
	"github.com/troupe-dev/troupe/pkg/tool"
)

// toResult returns the content of a result (CO-74). Images, sounds and embedded files become attachments, as far as the
// limits of one result allow. A link to a resource stays a link, because reading it is for another tool to decide.
func toResult(result *mcp.CallToolResult) tool.Result {
	var out resultBuilder
	for _, c := range result.Content {
		switch c := c.(type) {
		case *mcp.TextContent:
			out.texts = append(out.texts, c.Text)
		case *mcp.ImageContent:
			out.addFile("an image", conversation.Attachment{MediaType: c.MIMEType, Data: c.Data})
		case *mcp.AudioContent:
			out.addFile("a sound", conversation.Attachment{MediaType: c.MIMEType, Data: c.Data})
		case *mcp.ResourceLink:
			out.texts = append(out.texts, linkText(c))
		case *mcp.EmbeddedResource:
			out.addResource(c.Resource)
		}
	}
	structured, err := json.Marshal(result.StructuredContent)
	if err != nil || result.StructuredContent == nil {
		structured = nil
	}
	if len(out.texts)+len(out.files) == 0 {
		out.texts = append(out.texts, string(structured))
	}
	return tool.Result{Text: tool.TruncateResult(strings.Join(out.texts, "\n")), Attachments: out.files, Structured: structured}
}

// resultBuilder collects the texts and the files of a result.
type resultBuilder struct {
	texts []string
	files []conversation.Attachment
}

// addResource adds an embedded resource. Its text is text of the result, after the address.
func (b *resultBuilder) addResource(r *mcp.ResourceContents) {
	switch {
	case r == nil:
	case r.Text != "" || len(r.Blob) == 0:
		b.texts = append(b.texts, strings.TrimSpace(r.URI+"\n"+r.Text))
	default:
		b.texts = append(b.texts, r.URI)
		b.addFile("a file", conversation.Attachment{Name: b.nameFromURI(r.URI), MediaType: r.MIMEType, Data: r.Blob})
	}
}

// addFile adds a file to the result. If it exceeds a limit, the text says so instead, because the rest of the result is
// still of use.
func (b *resultBuilder) addFile(kind string, f conversation.Attachment) {
	checked := append(slices.Clone(b.files), f)
	for i := range checked {
		if checked[i].Name == "" {
			checked[i].Name = fmt.Sprint("file ", i+1)
		}
	}
	if err := attachment.Check("mcptool.Call", "content", checked); err != nil {
		b.texts = append(b.texts, fmt.Sprintf("(%s, %s, of %d bytes, is left out: a result has at most %d files of %d bytes, and %d bytes together)",
			kind, f.MediaType, len(f.Data), conversation.MaxAttachments, conversation.MaxAttachmentBytes, conversation.MaxAttachedBytes))
		return
	}
	b.files = append(b.files, f)
}

// nameFromURI returns the last part of an address as the name of a file. It returns "" if an artifact cannot have that
// name, or if another file has it.
func (b *resultBuilder) nameFromURI(uri string) string {
	name := path.Base(uri)
	isTaken := slices.ContainsFunc(b.files, func(f conversation.Attachment) bool { return f.Name == name })
	if isTaken || attachment.Check("mcptool.Call", "content", []conversation.Attachment{{Name: name, Data: []byte{0}}}) != nil {
		return ""
	}
	return name
}

// linkText describes a link to a resource: its name, address, type and description.
func linkText(l *mcp.ResourceLink) string {
	return strings.Join(strings.Fields(l.Name+" "+l.URI+" "+l.MIMEType+" "+l.Description), " ")
}
