package hook

import (
	"cmp"
	"strings"

	"github.com/troupe-dev/troupe/pkg/conversation"
	"github.com/troupe-dev/troupe/pkg/tool"
)

// untrusted is what a turn has read of others than its user and the author of its agent. It only
// grows: what was read does not become unread when messages are taken out.
type untrusted struct {
	source string // of words that anybody may have written
	party  string // that wrote the description of a tool, and nothing else
}

// Untrusted is the first source of words in what the model has read that neither the user nor the
// author of the agent wrote, such as "tool http_fetch"; empty: it has read none (S14).
func (t *Turn) Untrusted() string { return cmp.Or(t.read.source, t.read.party) }

// Read notes that the model reads words of a source; the empty source is nobody's.
func (c *Control) Read(source string) {
	read := &c.t.read
	source = conversation.From(source, "") // a function may have made it of anything
	switch {
	case !strings.HasPrefix(source, tool.PartyPrefix):
		read.source = cmp.Or(read.source, source)
	case read.party == "" || read.party == source:
		read.party = source
	default:
		read.source = cmp.Or(read.source, source)
	}
}

// ReadMessages is Read of all messages of the turn.
func (c *Control) ReadMessages() {
	for _, m := range c.t.messages {
		c.Read(m.Source())
	}
}

// Untrusted is that of the turn, as far as it counts for a tool: what the party that wrote of its
// tools itself may lead to a call of one of them.
func (c *Control) Untrusted(party string) string {
	if c.t.read.source == "" && c.t.read.party == party {
		return ""
	}
	return c.t.Untrusted()
}

// Allow notes that a person has allowed this call, with the arguments as they are: the guard asks
// for no more (S14). It is for a handler that asks within the turn; an answer to Wait needs none.
func (c *Call) Allow() { c.allowed = true }

// Allowed reports whether a person has allowed the call: by Allow, or by an answer that this turn
// brought.
func (c *Call) Allowed() bool { return c.allowed || allows(c.waiting.Answer) }
