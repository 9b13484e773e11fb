package tool

import (
	"github.com/troupe-dev/troupe/pkg/conversation"
	"github.com/troupe-dev/troupe/pkg/execution"
)

// Scope declares the flow of data between a tool and third parties: whose text it may return, and who may see its
// arguments (guarantee S14). It grants no rights. A third party is neither the user nor the author of the agent. With the zero Scope no third
// party is involved.
type Scope struct {
	// Untrusted means that results may contain text of third parties, such as web pages, mails or tickets. Such
	// text may try to make the model do something.
	Untrusted bool
	// Egress means that the arguments reach third parties, who may learn what the turn knows.
	Egress bool
	// Party names the third party that wrote the tool's name, description and schema: PartyPrefix followed by a
	// name. It is empty if the author of the agent wrote them. Text of a third party is untrusted from the first
	// model call on.
	Party string
}

// PartyPrefix begins the Party of a tool that the author of the agent did not describe.
const PartyPrefix = conversation.PartyPrefix

// Scoper is implemented by tools that declare their scope. A tool that does not counts as the author's own, with
// the zero Scope. Under the guard "strict" it counts as untrusted, with egress.
type Scoper interface {
	// Scope returns the scope of the tool. It must always return the same value.
	Scope() Scope
}

// ScopeOf returns the scope of a tool, and whether it declares one.
func ScopeOf(t Tool) (Scope, bool) {
	if s, ok := t.(Scoper); ok {
		return s.Scope(), true
	}
	switch t := t.(type) {
	case *decoratedTool:
		return t.within()
	case *decoratedStarter:
		return t.within()
	default:
		return Scope{}, false
	}
}

func (d *decoratedTool) within() (Scope, bool) {
	if d.scope != nil {
		return *d.scope, true
	}
	return ScopeOf(d.Tool)
}

// WithScope declares the scope of a tool, instead of its own. Call it around Func:
//
//	tool.WithScope(tool.Scope{Untrusted: true}, tool.WithEffect(execution.Read, inbox))
func WithScope(scope Scope, t Tool) Tool {
	return newDecoratedTool(decoratedTool{Tool: t, scope: &scope}, t)
}

// Guarded reports whether the guard applies to a tool once its turn has read untrusted text. It applies to tools
// that do something that cannot be undone, and to tools with egress. The client itself decides about the tools
// that it runs, unless they have egress.
func (s Scope) Guarded(effect execution.Effect, atClient bool) bool {
	return s.Egress || effect == execution.AtMostOnce && !atClient
}
