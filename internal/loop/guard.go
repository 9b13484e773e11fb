package loop

import (
	"github.com/troupe-dev/troupe/internal/loop/guard"
	"github.com/troupe-dev/troupe/pkg/conversation"
	"github.com/troupe-dev/troupe/pkg/tool"
)

// read notes which untrusted words the model is about to read: those of messages, and the names and
// descriptions of tools that others wrote.
func (r *run) read(offered bool) {
	r.Conversation.MarkMessagesRead()
	if !offered {
		return
	}
	for _, t := range r.tools.Tools() {
		if scope, _ := tool.ScopeOf(t); scope.Party != "" {
			r.Conversation.MarkRead(scope.Party)
		}
	}
}

// against is the source of untrusted words because of which a call is guarded; empty: it is not.
func (r *run) against(w *work) string {
	return guard.Source(r.loop.Guard, w.tool, w.call, r.Conversation.UntrustedFor)
}

// guard decides about a call whose handlers have run.
func (r *run) guard(w *work) error {
	if r.stopping() || r.Progress.Ended() {
		return nil
	}
	warning, refusal := guard.Check(r.loop.Guard, r.turn.Info().Agent, w.call)
	if refusal != nil {
		w.refuse(refusal)
	}
	if warning != nil {
		return r.Events.Emit(*warning)
	}
	return nil
}

// source names whose words the result of a call holds; empty: those of the user or the author.
func (w *work) source() string {
	w.quoting.Lock()
	defer w.quoting.Unlock()
	if w.left.Untrusted == "" && w.tool != nil && guard.Scope(w.r.loop.Guard, w.tool).Untrusted {
		return conversation.From("tool", w.asked.Name)
	}
	return w.left.Untrusted
}

// quotes notes what a tool says itself of whose words its result holds.
func (w *work) quotes(source string) {
	w.quoting.Lock()
	defer w.quoting.Unlock()
	if w.left.Untrusted == "" {
		w.left.Untrusted = source
	}
}
