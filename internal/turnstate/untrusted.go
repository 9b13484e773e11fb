package turnstate

import (
	"cmp"
	"strings"

	"github.com/troupe-dev/troupe/pkg/conversation"
	"github.com/troupe-dev/troupe/pkg/tool"
)

// readSources holds the untrusted sources that the model has read. It only grows: removing a message does not undo
// that it was read.
type readSources struct {
	source string // first source that anybody may have written (empty when there is none)
	party  string // author of a tool description, while that is all that was read of others (empty: none)
}

// MarkRead records that the model reads text of a source. An empty source is trusted.
func (c *Conversation) MarkRead(source string) {
	read := &c.read
	source = conversation.SourceName(source, "") // a function may have made it of anything
	switch {
	case !strings.HasPrefix(source, tool.PartyPrefix):
		read.source = cmp.Or(read.source, source)
	case read.party == "" || read.party == source:
		read.party = source
	default:
		read.source = cmp.Or(read.source, source)
	}
}

// MarkMessagesRead marks the sources of all messages as read.
func (c *Conversation) MarkMessagesRead() {
	for _, m := range c.messages {
		c.MarkRead(m.UntrustedSource())
	}
}

// Untrusted returns the first untrusted source that the model has read, or "" (S14).
func (c *Conversation) Untrusted() string { return cmp.Or(c.read.source, c.read.party) }

// UntrustedFor is Untrusted as it counts for a tool of party: the party's own tool descriptions do not count.
func (c *Conversation) UntrustedFor(party string) string {
	if c.read.source == "" && c.read.party == party {
		return ""
	}
	return c.Untrusted()
}
