// Package structured makes log lines that programs read: one of a fixed list of events, with
// the same fields in every process (contract OC-30, OC-31). Secrets are redacted by the names
// of their keys, and texts of people are cut.
package structured

import (
	"context"
	"slices"

	"go.opentelemetry.io/otel/trace"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"

	"github.com/troupe-dev/troupe/pkg/failure"
)

// Name says what happened.
type Name string

// The names. There are no others.
const (
	PlanCreated       Name = "plan_created"
	RouteDecision     Name = "route_decision"
	ToolCallStart     Name = "tool_call_start"
	ToolCallComplete  Name = "tool_call_complete"
	ToolCallError     Name = "tool_call_error"
	BudgetWarning     Name = "budget_warning" // 80 % are used
	BudgetExceeded    Name = "budget_exceeded"
	BudgetUpdated     Name = "budget_updated"
	ApprovalRequested Name = "approval_requested"
	ApprovalReceived  Name = "approval_received"
	ApprovalTimeout   Name = "approval_timeout"
	ExecutionStart    Name = "execution_start"
	ExecutionComplete Name = "execution_complete"
	ExecutionError    Name = "execution_error"
	MemoryQuery       Name = "memory_query"
	MemoryStore       Name = "memory_store"

	OrchestrationComplete Name = "orchestration.complete" // with the state of the turn (SO-10)
)

// names are all of them, with the level at which they are logged: what happens in every turn
// is for those who look closely.
var names = map[Name]zapcore.Level{
	PlanCreated: zap.DebugLevel, RouteDecision: zap.DebugLevel,
	ToolCallStart: zap.DebugLevel, ToolCallComplete: zap.DebugLevel, ToolCallError: zap.InfoLevel,
	BudgetWarning: zap.InfoLevel, BudgetExceeded: zap.InfoLevel, BudgetUpdated: zap.DebugLevel,
	ApprovalRequested: zap.InfoLevel, ApprovalReceived: zap.InfoLevel, ApprovalTimeout: zap.InfoLevel,
	ExecutionStart: zap.DebugLevel, ExecutionComplete: zap.DebugLevel, ExecutionError: zap.InfoLevel,
	MemoryQuery: zap.DebugLevel, MemoryStore: zap.DebugLevel,
	OrchestrationComplete: zap.DebugLevel,
}

// Names are all names, sorted.
func Names() []Name {
	all := make([]Name, 0, len(names))
	for name := range names {
		all = append(all, name)
	}
	slices.Sort(all)
	return all
}

// Event is one line. Its time, level and service are those of the logger, its component the
// logger's name, and its span that of the context.
type Event struct {
	Name    Name
	Message string // one sentence for a person
	TraceID string
	UserID  string // whose session it is: an id, and no secret
	Profile string
	// Data says more. Values are what JSON can hold. Those under keys that sound like a secret
	// are redacted; goal is cut to 200 characters and reason to 500.
	Data map[string]any
}

// Emit logs an event. It fails with user_invalid_input, and logs nothing, when there is no
// such name.
func Emit(ctx context.Context, log *zap.Logger, e Event) error {
	level, ok := names[e.Name]
	if !ok {
		return failure.Newf(failure.UserInvalidInput, "structured.Emit", "event %q: there is no such event; there are %v", e.Name, Names())
	}
	line := log.Check(level, e.Message)
	if line == nil {
		return nil
	}
	fields := []zap.Field{
		zap.String("event", string(e.Name)), zap.String("trace_id", e.TraceID), zap.String("span_id", span(ctx)),
		zap.String("user_id", e.UserID), zap.String("profile", e.Profile),
	}
	if len(e.Data) > 0 {
		fields = append(fields, zap.Any("data", Redact(e.Data)))
	}
	line.Write(fields...)
	return nil
}

// span is the one of the context; empty when nothing is traced.
func span(ctx context.Context) string {
	if s := trace.SpanContextFromContext(ctx); s.HasSpanID() {
		return s.SpanID().String()
	}
	return ""
}
