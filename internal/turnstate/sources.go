package turnstate

import (
	"cmp"
	"strings"

	"github.com/troupe-dev/troupe/pkg/conversation"
	"github.com/troupe-dev/troupe/pkg/tool"
)

// readSources holds the untrusted sources of the text that the model has read. Removing a message does not remove
// its source, because the model has already read it.
type readSources struct {
	source string // first source that untrusted people may have written (empty if none)
	party  string // author of the tool descriptions, if no other foreign text was read (empty if none)
}

// AddSource records that the model reads text from a source. An empty source is trusted and ignored.
func (c *Conversation) AddSource(source string) {
	read := &c.sources
	source = conversation.SourceName(source, "") // a function may have built the name from arbitrary text
	switch {
	case !strings.HasPrefix(source, tool.PartyPrefix):
		read.source = cmp.Or(read.source, source)
	case read.party == "" || read.party == source:
		read.party = source
	default:
		read.source = cmp.Or(read.source, source)
	}
}

// AddMessageSources records the sources of all messages.
func (c *Conversation) AddMessageSources() {
	for _, m := range c.messages {
		c.AddSource(m.UntrustedSource())
	}
}

// UntrustedSource returns the first untrusted source that the model has read, or "" (guarantee S14). The author of tool
// descriptions counts only if there is no other source.
func (c *Conversation) UntrustedSource() string { return cmp.Or(c.sources.source, c.sources.party) }

// UntrustedSourceFor is UntrustedSource for a tool of the given party. It ignores the tool descriptions that the
// party itself wrote.
func (c *Conversation) UntrustedSourceFor(party string) string {
	if c.sources.source == "" && c.sources.party == party {
		return ""
	}
	return c.UntrustedSource()
}
