package journal

import (
	"crypto/sha256"
	"encoding/base32"
	"encoding/json"
	"strings"
	"time"

	"github.com/troupe-dev/troupe/pkg/conversation"
	"github.com/troupe-dev/troupe/pkg/llm"
)

// requestParts lists the names of a model request's parts in the order of its digest.
var requestParts = [...]string{"instructions", "messages", "tools"}

// RequestDigest returns the digest of a model request. It consists of one word for each part, so that
// DifferentParts can say which part differs. It ignores when and where a message was stored and everything that no
// model reads.
func RequestDigest(req llm.Request) string {
	messages := make([]conversation.Message, len(req.Messages))
	for i, m := range req.Messages {
		m.Sequence, m.Turn, m.Time, m.Untrusted = 0, 0, time.Time{}, ""
		m.Attachments = conversation.AttachmentsWithoutData(m.Attachments)
		messages[i] = m
	}
	return strings.Join([]string{digestPart(req.System), digestPart(messages), digestPart([]any{req.Tools, req.Choices})}, " ")
}

// digestPart returns a digest of one part: eight letters and digits, or "-" if the part cannot be encoded.
func digestPart(part any) string {
	text, err := json.Marshal(part)
	if err != nil { // such as a tool with an invalid schema; all of them get the same digest
		return "-"
	}
	sum := sha256.Sum256(text)
	return strings.ToLower(base32.StdEncoding.EncodeToString(sum[:5]))
}

// DifferentParts returns the names of the parts in which two request digests differ. It returns none if one of the
// digests is empty.
func DifferentParts(one, other string) []string {
	ours, theirs := strings.Fields(one), strings.Fields(other)
	if len(ours) != len(requestParts) || len(theirs) != len(requestParts) {
		return nil
	}
	var parts []string
	for i, name := range requestParts {
		if ours[i] != theirs[i] {
			parts = append(parts, name)
		}
	}
	return parts
}
