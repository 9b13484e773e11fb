package tool

import (
	"github.com/troupe-dev/troupe/pkg/conversation"
	"github.com/troupe-dev/troupe/pkg/execution"
)

// Scope says to whom a tool opens a turn, beside the user and the author of the agent (guarantees
// S14). The zero Scope is that of a tool which stays among these: its results are words of theirs,
// and its arguments reach nobody else.
type Scope struct {
	// Untrusted: its results hold what others wrote, such as pages, mails or tickets. They may be
	// written to make a model do something.
	Untrusted bool
	// Egress: its arguments reach others, who may learn from them what the turn knows.
	Egress bool
	// Party names who else wrote its name, its description and its schema: PartyPrefix with a name;
	// empty: the author of the agent did. What the party says there is untrusted for all tools but
	// its own, from the first model call on.
	Party string
}

// PartyPrefix begins the name of a Party that is no author of an agent.
const PartyPrefix = conversation.PartyPrefix

// Scoper is implemented by tools that declare their scope. One that does not is taken as the
// author's own, with the zero Scope; under the guard "strict" as one that is all of it.
type Scoper interface {
	// Scope is the same each time.
	Scope() Scope
}

// ScopeOf is the scope of a tool, and whether it declares one.
func ScopeOf(t Tool) (Scope, bool) {
	if s, ok := t.(Scoper); ok {
		return s.Scope(), true
	}
	switch t := t.(type) {
	case *with:
		return t.within()
	case *startingWith:
		return t.within()
	default:
		return Scope{}, false
	}
}

func (w *with) within() (Scope, bool) {
	if w.scope != nil {
		return *w.scope, true
	}
	return ScopeOf(w.Tool)
}

// Within declares the scope of a tool, in the place of the one that it has. Call it around Func:
//
//	tool.Within(tool.Scope{Untrusted: true}, tool.With(execution.Read, inbox))
func Within(scope Scope, t Tool) Tool {
	return wrapped(with{Tool: t, scope: &scope}, t)
}

// Guarded reports whether a turn that has read what others wrote may lose a tool: what it does
// cannot be undone, or reaches others. What the client of the agent runs is the client's to
// decide, unless it reaches others.
func (s Scope) Guarded(effect execution.Effect, atClient bool) bool {
	return s.Egress || effect == execution.AtMostOnce && !atClient
}
