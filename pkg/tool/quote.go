package tool

import (
	"context"

	"github.com/troupe-dev/troupe/pkg/conversation"
)

type quoteKey struct{}

// Quotes declares, from inside a call, that the result contains text of a third party, such as "mailbox ann". A
// third party is neither the user nor the author of the agent. Use it for tools where only some calls return such
// text; otherwise declare it with WithScope. The source is cut to 128 bytes, and only the first one counts. Quotes
// may be called by any goroutine until the call ends. It does nothing outside of a turn.
func Quotes(ctx context.Context, source string) {
	if heard, ok := ctx.Value(quoteKey{}).(func(string)); ok && source != "" {
		heard(conversation.SourceName(source, ""))
	}
}

// ContextWithQuoteHandler returns a context for a call, in which Quotes passes its source to heard. heard may be
// called by several goroutines. Callers of tools use it.
func ContextWithQuoteHandler(ctx context.Context, heard func(source string)) context.Context {
	return context.WithValue(ctx, quoteKey{}, heard)
}
