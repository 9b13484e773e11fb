package conversation

import (
	"slices"
	"strings"
)

// MaxSource is how long the name of a source of untrusted words is, in bytes.
const MaxSource = 128

// From is a source of untrusted words of a kind, such as "tool http_fetch".
func From(kind, name string) string {
	return Cut(strings.Join(strings.Fields(strings.ToValidUTF8(kind+" "+name, "")), " "), MaxSource)
}

// Source names the source of words in a message that neither the user nor the author of the agent wrote (empty if there are
// none). A file that the user attaches is such a source, because its author is unknown. So is a summary of messages that
// had one.
func (m Message) Source() string {
	switch {
	case m.Untrusted != "":
		return m.Untrusted
	case len(m.Attachments) > 0:
		return From("file", m.Attachments[0].Name)
	case m.Role == RoleSummary:
		return marked(m.Text)
	default:
		return ""
	}
}

// PartyPrefix begins the name of a source that is a party: it wrote the descriptions of its own tools,
// and these alone may follow from them.
const PartyPrefix = "MCP server "

// Gravest is the source that counts for all of them: the first that is no party, or else the first;
// empty: there is none.
func Gravest(sources ...string) string {
	gravest := ""
	for _, source := range sources {
		if gravest == "" || strings.HasPrefix(gravest, PartyPrefix) && source != "" && !strings.HasPrefix(source, PartyPrefix) {
			gravest = source
		}
	}
	return gravest
}

// Untrusted is the Gravest source of untrusted words in messages; empty: there is none.
func Untrusted(messages []Message) string {
	gravest := ""
	for _, m := range messages {
		gravest = Gravest(gravest, m.Source())
	}
	return gravest
}

// Behind is the end of a conversation of which a source is remembered: when it shows neither the
// source nor one that is no party, its first message names it, or of two parties the first
// that names none. What was read does not become unread
// when it is shown no more (S14).
func Behind(source string, window []Message) []Message {
	shown := Untrusted(window)
	if len(window) == 0 || source == "" || shown == source || shown != "" && !strings.HasPrefix(shown, PartyPrefix) {
		return window
	}
	at := 0
	if strings.HasPrefix(source, PartyPrefix) { // both are named: no tool of one may follow from words of the other
		at = max(0, slices.IndexFunc(window, func(m Message) bool { return m.Source() == "" }))
	}
	window = slices.Clone(window)
	window[at].Untrusted = source
	return window
}

// Reader is the role in which a model reads a message: untrusted words never have the role of the system
// (S14).
func (m Message) Reader() Role {
	if m.Role == RoleSystem && m.Source() != "" {
		return RoleUser
	}
	return m.Role
}

// markBegins and markEnds stand around the source in the last line of a summary.
const (
	markBegins = "\n(Some of it comes from "
	markEnds   = ".)"
)

// mark has a summary say in at most limit bytes that it stands for untrusted words. The mark
// comes last, so that nothing that was said can take it away.
func mark(summary, source string, limit int) string {
	if source == "" {
		return Cut(summary, limit)
	}
	line := markBegins + source + markEnds
	return Cut(summary, max(0, limit-len(line))) + line
}

// marked is the source that a summary names; empty: none.
func marked(summary string) string {
	at := strings.LastIndex(summary, markBegins)
	if at < 0 || !strings.HasSuffix(summary, markEnds) {
		return ""
	}
	return Cut(strings.TrimSuffix(summary[at+len(markBegins):], markEnds), MaxSource)
}
