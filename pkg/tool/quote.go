package tool

import (
	"context"

	"github.com/troupe-dev/troupe/pkg/conversation"
)

type quoteKey struct{}

// Quotes says, from inside a call, that its result holds words of a source other than the user and the author of
// the agent, such as "mailbox ann". It is for tools where that is true for some calls only; others declare it with
// Within. The source is cut to 128 bytes, and the first one counts. It may be called by any goroutine until the
// call ends, and does nothing outside of a turn.
func Quotes(ctx context.Context, source string) {
	if heard, ok := ctx.Value(quoteKey{}).(func(string)); ok && source != "" {
		heard(conversation.SourceName(source, ""))
	}
}

// Quoting returns the context of a call whose Quotes goes to heard, which may be called by several goroutines. It
// is for callers of tools.
func Quoting(ctx context.Context, heard func(source string)) context.Context {
	return context.WithValue(ctx, quoteKey{}, heard)
}
