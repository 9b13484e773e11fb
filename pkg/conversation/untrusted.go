package conversation

import (
	"slices"
	"strings"
)

// MaxSource is the limit of the name of a source of untrusted words, in bytes.
const MaxSource = 128

// SourceName returns the name of a source of untrusted words, such as "tool http_fetch".
func SourceName(kind, name string) string {
	return Cut(strings.Join(strings.Fields(strings.ToValidUTF8(kind+" "+name, "")), " "), MaxSource)
}

// UntrustedSource names the source of words in a message that neither the user nor the author of the agent wrote (empty if there are
// none). A file that the user attaches is such a source, because its author is unknown. So is a summary of messages that
// had one.
func (m Message) UntrustedSource() string {
	switch {
	case m.Untrusted != "":
		return m.Untrusted
	case len(m.Attachments) > 0:
		return SourceName("file", m.Attachments[0].Name)
	case m.Role == RoleSummary:
		return marked(m.Text)
	default:
		return ""
	}
}

// PartyPrefix is the prefix of a source that is a party. A party wrote the descriptions of its own tools, and these
// descriptions may cause calls of these tools only.
const PartyPrefix = "MCP server "

// GravestSource returns the source that represents all of them: the first that is no party, otherwise the first ("" for none).
func GravestSource(sources ...string) string {
	gravest := ""
	for _, source := range sources {
		if gravest == "" || strings.HasPrefix(gravest, PartyPrefix) && source != "" && !strings.HasPrefix(source, PartyPrefix) {
			gravest = source
		}
	}
	return gravest
}

// UntrustedSource returns the Gravest source of untrusted words in messages ("" for none).
func UntrustedSource(messages []Message) string {
	gravest := ""
	for _, m := range messages {
		gravest = GravestSource(gravest, m.UntrustedSource())
	}
	return gravest
}

// MarkUntrusted returns a window of a conversation in which source was read before. If the window shows neither the source nor one
// that is no party, Behind marks its first message with the source, or for two parties the first message without a source.
// So a source still counts when the window no longer shows it (S14).
func MarkUntrusted(source string, window []Message) []Message {
	shown := UntrustedSource(window)
	if len(window) == 0 || source == "" || shown == source || shown != "" && !strings.HasPrefix(shown, PartyPrefix) {
		return window
	}
	at := 0
	if strings.HasPrefix(source, PartyPrefix) { // both are named: no tool of one may follow from words of the other
		at = max(0, slices.IndexFunc(window, func(m Message) bool { return m.UntrustedSource() == "" }))
	}
	window = slices.Clone(window)
	window[at].Untrusted = source
	return window
}

// ReaderRole returns the role in which a model reads a message. Untrusted words never have the role of the system (S14).
func (m Message) ReaderRole() Role {
	if m.Role == RoleSystem && m.UntrustedSource() != "" {
		return RoleUser
	}
	return m.Role
}

// markBegins and markEnds enclose the source in the last line of a summary.
const (
	markBegins = "\n(Some of it comes from "
	markEnds   = ".)"
)

// mark appends the source of untrusted words to a summary, within limit bytes. The mark is the last line, so that no text of
// the conversation can remove it.
func mark(summary, source string, limit int) string {
	if source == "" {
		return Cut(summary, limit)
	}
	line := markBegins + source + markEnds
	return Cut(summary, max(0, limit-len(line))) + line
}

// marked returns the source that a summary names ("" for none).
func marked(summary string) string {
	at := strings.LastIndex(summary, markBegins)
	if at < 0 || !strings.HasSuffix(summary, markEnds) {
		return ""
	}
	return Cut(strings.TrimSuffix(summary[at+len(markBegins):], markEnds), MaxSource)
}
