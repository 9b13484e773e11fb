package conversation

import (
	"slices"
	"strings"
)

// MaxSource is the maximum length of the name of an untrusted source, in bytes.
const MaxSource = 128

// SourceName returns the name of a source of untrusted words, such as "tool http_fetch".
func SourceName(kind, name string) string {
	return Cut(strings.Join(strings.Fields(strings.ToValidUTF8(kind+" "+name, "")), " "), MaxSource)
}

// UntrustedSource returns the source of words in the message that neither the user nor the author of the agent
// wrote (empty if there is none). An attached file is such a source, because its author is unknown. A summary has the
// source of the messages that it replaces.
func (m Message) UntrustedSource() string {
	switch {
	case m.Untrusted != "":
		return m.Untrusted
	case len(m.Attachments) > 0:
		return SourceName("file", m.Attachments[0].Name)
	case m.Role == RoleSummary:
		return markedSource(m.Text)
	default:
		return ""
	}
}

// PartyPrefix is the prefix of a source that is a party, which is an MCP server. A party wrote the descriptions of
// its own tools, so its words may cause calls of these tools and of no others.
const PartyPrefix = "MCP server "

// GravestSource returns the source that restricts the most: the first one that is not a party, or else the first
// one ("" for none).
func GravestSource(sources ...string) string {
	gravest := ""
	for _, source := range sources {
		if gravest == "" || strings.HasPrefix(gravest, PartyPrefix) && source != "" && !strings.HasPrefix(source, PartyPrefix) {
			gravest = source
		}
	}
	return gravest
}

// UntrustedSource returns the gravest source of untrusted words in the messages ("" for none).
func UntrustedSource(messages []Message) string {
	gravest := ""
	for _, m := range messages {
		gravest = GravestSource(gravest, m.UntrustedSource())
	}
	return gravest
}

// MarkUntrusted returns a window of a conversation in which source was read before, so that the source still
// counts when the window no longer shows its words (S14). It changes nothing if the window shows the source itself
// or a source that is not a party. Otherwise it marks the first message with the source. If window and source name
// two parties, it marks the first message without a source.
func MarkUntrusted(source string, window []Message) []Message {
	shown := UntrustedSource(window)
	if len(window) == 0 || source == "" || shown == source || shown != "" && !strings.HasPrefix(shown, PartyPrefix) {
		return window
	}
	at := 0
	if strings.HasPrefix(source, PartyPrefix) { // both parties must be named: words of one must not cause calls of the other's tools
		at = max(0, slices.IndexFunc(window, func(m Message) bool { return m.UntrustedSource() == "" }))
	}
	window = slices.Clone(window)
	window[at].Untrusted = source
	return window
}

// ReaderRole returns the role that the message has for a model. Untrusted words never have the system role (S14).
func (m Message) ReaderRole() Role {
	if m.Role == RoleSystem && m.UntrustedSource() != "" {
		return RoleUser
	}
	return m.Role
}

// markBegins and markEnds enclose the name of the source in the last line of a summary.
const (
	markBegins = "\n(Some of it comes from "
	markEnds   = ".)"
)

// appendMark appends the source of untrusted words to a summary, within limit bytes. The mark is the last line, so
// that no text of the conversation can remove it.
func appendMark(summary, source string, limit int) string {
	if source == "" {
		return Cut(summary, limit)
	}
	line := markBegins + source + markEnds
	return Cut(summary, max(0, limit-len(line))) + line
}

// markedSource returns the source that the mark of a summary names ("" for none).
func markedSource(summary string) string {
	at := strings.LastIndex(summary, markBegins)
	if at < 0 || !strings.HasSuffix(summary, markEnds) {
		return ""
	}
	return Cut(strings.TrimSuffix(summary[at+len(markBegins):], markEnds), MaxSource)
}
