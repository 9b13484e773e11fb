package briefing

import (
	"context"

	"github.com/troupe-dev/troupe/pkg/execution"
	"github.com/troupe-dev/troupe/pkg/llm"
)

// WithExecution returns ctx with the execution context of the agent. Its parent is the context of the agent's
// parent, or of the turn. Handlers, models and tools read it with execution.ContextFrom.
func WithExecution(ctx context.Context, s execution.Step) context.Context {
	parent, ok := execution.ContextFrom(ctx)
	if !ok {
		parent = s.Context
	}
	if parent.IsZero() {
		made, err := execution.NewContext(execution.Origin{
			TraceID: s.TraceID, RootTraceID: s.RootTraceID, UserID: s.User,
			ConversationID: s.SessionID, SessionID: s.SessionID,
		})
		if err != nil { // an agent that a program runs directly may have no trace
			return ctx
		}
		parent = made
	}
	return execution.WithContext(ctx, parent.WithUserIntent(Intent(s)))
}

// RoundTokens returns how many tokens the conversation of a step may have with the tool rounds of earlier steps: three
// quarters of what the model reads, and a quarter of what is left of the budget, because each call of the model costs
// them again.
func RoundTokens(model llm.Model, s execution.Step) int64 {
	size := int64(llm.DefaultContextSize)
	if model != nil {
		size = llm.ContextSizeOf(model)
	}
	return min(size*3/4, s.Budget.Left().Tokens/4)
}
