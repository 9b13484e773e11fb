package loop

import (
	"crypto/sha256"
	"encoding/base32"
	"encoding/json"
	"strings"
	"time"

	"github.com/troupe-dev/troupe/pkg/conversation"
	"github.com/troupe-dev/troupe/pkg/llm"
)

// The parts of what a model is asked, in the order of a digest.
var askedParts = [...]string{"instructions", "messages", "tools"}

// asks is the digest of what a model is asked: one for each part, so that it can be told which
// one differs. When and where a message was stored does not count, nor does what no model reads.
func asks(req llm.Request) string {
	messages := make([]conversation.Message, len(req.Messages))
	for i, m := range req.Messages {
		m.Sequence, m.Turn, m.Time, m.Untrusted = 0, 0, time.Time{}, ""
		m.Attachments = conversation.References(m.Attachments)
		messages[i] = m
	}
	return strings.Join([]string{short(req.System), short(messages), short([]any{req.Tools, req.Choices})}, " ")
}

// short is a digest of eight letters.
func short(part any) string {
	text, err := json.Marshal(part)
	if err != nil { // such as the schema of a tool that is none: then it is the same as any other
		return "-"
	}
	sum := sha256.Sum256(text)
	return strings.ToLower(base32.StdEncoding.EncodeToString(sum[:5]))
}

// Apart are the parts in which two digests of what a model was asked differ; none when one of them
// is empty.
func Apart(one, other string) []string {
	ours, theirs := strings.Fields(one), strings.Fields(other)
	if len(ours) != len(askedParts) || len(theirs) != len(askedParts) {
		return nil
	}
	var parts []string
	for i, name := range askedParts {
		if ours[i] != theirs[i] {
			parts = append(parts, name)
		}
	}
	return parts
}
