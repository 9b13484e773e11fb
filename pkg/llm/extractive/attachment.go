package extractive

import (
	"fmt"
	"strings"

	"github.com/troupe-dev/troupe/pkg/conversation"
	"github.com/troupe-dev/troupe/pkg/llm"
)

// attachmentsAsResults returns the text files of a message in the form of search results, in which each paragraph
// has its file and line.
func attachmentsAsResults(m conversation.Message) []conversation.Message {
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
