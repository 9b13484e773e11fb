package main

import (
	"fmt"
	"strings"

	"github.com/troupe-dev/troupe/internal/wire"
	"github.com/troupe-dev/troupe/pkg/conversation"
	troupev1 "github.com/troupe-dev/troupe/pkg/gen/troupe/v1"
)

// sent is a file that came with an input, on one line.
func sent(b *troupev1.Blob) string {
	stored := ""
	if v := b.GetArtifact().GetVersion(); v > 0 {
		stored = fmt.Sprintf(", artifact version %d", v)
	}
	return fmt.Sprintf("%s, %s, %d bytes%s", oneLine(b.GetName()), oneLine(b.GetMediaType()), b.GetSize(), stored)
}

// spoke is a message with the files that came with it.
func spoke(m conversation.Message) string {
	lines := []string{m.Text}
	for _, a := range m.Attachments {
		lines = append(lines, "[file "+sent(wire.BlobToProto(a))+"]")
	}
	return strings.Join(lines, "\n")
}
