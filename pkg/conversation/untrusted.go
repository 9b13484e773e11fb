package conversation

import (
	"slices"
	"strings"
)

// MaxSourceBytes is the maximum length of the name of an untrusted source, in bytes. PartyPrefix is the prefix of sources that
// are parties. A party is an MCP server. It wrote the descriptions of its own tools, so its text may cause calls of these
// tools, but not of others.
const (
	MaxSourceBytes = 128
	PartyPrefix    = "MCP server "
)

// SourceName returns the name of a source of untrusted text, such as "tool http_fetch".
func SourceName(kind, name string) string {
	return Truncate(strings.Join(strings.Fields(strings.ToValidUTF8(kind+" "+name, "")), " "), MaxSourceBytes)
}

// UntrustedSource returns the source of text in the message that neither the user nor the author of the agent
// wrote (empty if there is none). A file that the user attached counts as such a source, because its author is unknown.
// A summary has the source of the messages that it replaces.
func (m Message) UntrustedSource() string {
	switch {
	case m.Untrusted != "":
		return m.Untrusted
	case len(m.Attachments) > 0 && m.Role != RoleTool: // a tool declares itself what it returns
		return SourceName("file", m.Attachments[0].Name)
	case m.Role == RoleSummary:
		return sourceFromMark(m.Text)
	default:
		return ""
	}
}

// MostRestrictiveSource returns the source that restricts tool calls the most. This is the first source that is
// not a party. If all are parties, it is the first party ("" if there is none).
func MostRestrictiveSource(sources ...string) string {
	gravest := ""
	for _, source := range sources {
		if gravest == "" || strings.HasPrefix(gravest, PartyPrefix) && source != "" && !strings.HasPrefix(source, PartyPrefix) {
			gravest = source
		}
	}
	return gravest
}

// UntrustedSource returns the most restrictive source of untrusted text in the messages ("" if there is none).
func UntrustedSource(messages []Message) string {
	gravest := ""
	for _, m := range messages {
		gravest = MostRestrictiveSource(gravest, m.UntrustedSource())
	}
	return gravest
}

// MarkUntrusted marks a window of a conversation with an untrusted source that was read before the window. So the
// source still counts when its text is no longer in the window (guarantee S14). MarkUntrusted changes nothing if the window
// contains that source, or a source that is not a party. Otherwise it marks the first message. If the source and
// the window name two different parties, it marks the first message that has no source.
func MarkUntrusted(source string, window []Message) []Message {
	shown := UntrustedSource(window)
	if len(window) == 0 || source == "" || shown == source || shown != "" && !strings.HasPrefix(shown, PartyPrefix) {
		return window
	}
	at := 0
	if strings.HasPrefix(source, PartyPrefix) { // both parties must be named, because text of one must not cause calls of the other's tools
		at = max(0, slices.IndexFunc(window, func(m Message) bool { return m.UntrustedSource() == "" }))
	}
	window = slices.Clone(window)
	window[at].Untrusted = source
	return window
}

// ReaderRole returns the role under which a model gets the message. Untrusted text never gets the system role
// (guarantee S14).
func (m Message) ReaderRole() Role {
	if m.Role == RoleSystem && m.UntrustedSource() != "" {
		return RoleUser
	}
	return m.Role
}

// markPrefix and markSuffix enclose the name of the source in the last line of a summary.
const (
	markPrefix = "\n(Some of it comes from "
	markSuffix = ".)"
)

// appendSourceMark appends the source of untrusted text to a summary, within limit bytes. The mark is the last
// line, so that no text in the conversation can remove it.
func appendSourceMark(summary, source string, limit int) string {
	if source == "" {
		return Truncate(summary, limit)
	}
	line := markPrefix + source + markSuffix
	return Truncate(summary, max(0, limit-len(line))) + line
}

// sourceFromMark returns the source that the mark of a summary names ("" if it has no mark).
func sourceFromMark(summary string) string {
	at := strings.LastIndex(summary, markPrefix)
	if at < 0 || !strings.HasSuffix(summary, markSuffix) {
		return ""
	}
	return Truncate(strings.TrimSuffix(summary[at+len(markPrefix):], markSuffix), MaxSourceBytes)
}
