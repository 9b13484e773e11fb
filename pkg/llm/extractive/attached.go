package extractive

import (
	"fmt"
	"strings"

	"github.com/troupe-dev/troupe/pkg/conversation"
	"github.com/troupe-dev/troupe/pkg/llm"
)

// attached are the texts that came with a message, as a tool that searches would give them: each
// block between blank lines with its place.
func attached(m conversation.Message) []conversation.Message {
	var all []conversation.Message
	for _, a := range m.Attachments {
		if !llm.IsText(a) {
			continue
		}
		var blocks []string
		line := 1
		for block := range strings.SplitSeq(string(a.Data), "\n\n") {
			if strings.TrimSpace(block) != "" {
				blocks = append(blocks, fmt.Sprintf("%s:%d\n%s", a.Name, line, strings.Trim(block, "\n")))
			}
			line += strings.Count(block, "\n") + 2
		}
		all = append(all, conversation.Message{Role: conversation.RoleUser, Author: a.Name, Text: strings.Join(blocks, "\n\n")})
	}
	return all
}
