package tool

import (
	"github.com/troupe-dev/troupe/pkg/conversation"
	"github.com/troupe-dev/troupe/pkg/execution"
)

// Scope says whose text a tool may return and who may see its arguments, other than the user and the author of the
// agent (guarantee S14). With the zero Scope, the results contain only text of these two, and the arguments reach
// only them.
type Scope struct {
	// Untrusted means that its results hold what others wrote, such as pages, mails or tickets. Such words may try
	// to make a model do something.
	Untrusted bool
	// Egress means that its arguments reach others, who may learn from them what the turn knows.
	Egress bool
	// Party names who else wrote the tool's name, description and schema: PartyPrefix with a name (empty means the
	// author of the agent). For all other tools, these words are untrusted from the first model call on.
	Party string
}

// PartyPrefix begins the name of a Party that is not an author of an agent.
const PartyPrefix = conversation.PartyPrefix

// Scoper is implemented by tools that declare their scope. A tool that does not counts as the author's own, with
// the zero Scope. Under the guard "strict" it counts as untrusted, with egress.
type Scoper interface {
	// Scope returns the same value each time.
	Scope() Scope
}

// ScopeOf returns the scope of a tool, and whether it declares one.
func ScopeOf(t Tool) (Scope, bool) {
	if s, ok := t.(Scoper); ok {
		return s.Scope(), true
	}
	switch t := t.(type) {
	case *decorated:
		return t.within()
	case *decoratedStarter:
		return t.within()
	default:
		return Scope{}, false
	}
}

func (d *decorated) within() (Scope, bool) {
	if d.scope != nil {
		return *d.scope, true
	}
	return ScopeOf(d.Tool)
}

// Within declares the scope of a tool, instead of its own. Call it around Func:
//
//	tool.Within(tool.Scope{Untrusted: true}, tool.With(execution.Read, inbox))
func Within(scope Scope, t Tool) Tool {
	return wrapped(decorated{Tool: t, scope: &scope}, t)
}

// Guarded reports whether the guard applies to a tool once its turn has read what others wrote: the tool does
// something that cannot be undone, or reaches others. The client decides about tools that it runs, unless they
// reach others.
func (s Scope) Guarded(effect execution.Effect, atClient bool) bool {
	return s.Egress || effect == execution.AtMostOnce && !atClient
}
