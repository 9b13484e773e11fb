// Package structured writes log lines for programs to read: a fixed list of events, with the same fields in every
// process (contract OC-30, OC-31). It redacts secrets by key, and cuts long texts.
package structured

import (
	"context"
	"slices"

	"go.opentelemetry.io/otel/trace"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"

	"github.com/troupe-dev/troupe/pkg/failure"
)

// EventName is the name of a log event.
type EventName string

// These are all event names.
const (
	PlanCreated       EventName = "plan_created"
	RouteDecision     EventName = "route_decision"
	ToolCallStart     EventName = "tool_call_start"
	ToolCallComplete  EventName = "tool_call_complete"
	ToolCallError     EventName = "tool_call_error"
	BudgetWarning     EventName = "budget_warning" // 80 % of a limit is used
	BudgetExceeded    EventName = "budget_exceeded"
	BudgetUpdated     EventName = "budget_updated"
	ApprovalRequested EventName = "approval_requested"
	ApprovalReceived  EventName = "approval_received"
	ApprovalTimeout   EventName = "approval_timeout"
	ExecutionStart    EventName = "execution_start"
	ExecutionComplete EventName = "execution_complete"
	ExecutionError    EventName = "execution_error"
	MemoryQuery       EventName = "memory_query"
	MemoryStore       EventName = "memory_store"

	OrchestrationComplete EventName = "orchestration.complete" // contains the state of the turn (SO-10)
)

// levels maps each event name to its log level. Events that occur in every turn have level debug.
var levels = map[EventName]zapcore.Level{
	PlanCreated: zap.DebugLevel, RouteDecision: zap.DebugLevel,
	ToolCallStart: zap.DebugLevel, ToolCallComplete: zap.DebugLevel, ToolCallError: zap.InfoLevel,
	BudgetWarning: zap.InfoLevel, BudgetExceeded: zap.InfoLevel, BudgetUpdated: zap.DebugLevel,
	ApprovalRequested: zap.InfoLevel, ApprovalReceived: zap.InfoLevel, ApprovalTimeout: zap.InfoLevel,
	ExecutionStart: zap.DebugLevel, ExecutionComplete: zap.DebugLevel, ExecutionError: zap.InfoLevel,
	MemoryQuery: zap.DebugLevel, MemoryStore: zap.DebugLevel,
	OrchestrationComplete: zap.DebugLevel,
}

// EventNames returns all event names, sorted.
func EventNames() []EventName {
	all := make([]EventName, 0, len(levels))
	for name := range levels {
		all = append(all, name)
	}
	slices.Sort(all)
	return all
}

// Event is one log line. The logger supplies the time, the level and the service. The component is the logger's
// name, and the span comes from the context.
type Event struct {
	Name    EventName
	Message string // one phrase for people
	TraceID string
	UserID  string // owner of the session; an id, not a secret
	Profile string
	// Data holds details as JSON values. Values under keys that look like the name of a secret are redacted. The
	// text of goal is cut to 200 characters, and reason to 500.
	Data map[string]any
}

// Emit logs an event. If its name is unknown, Emit logs nothing and returns an error of mode user_invalid_input.
func Emit(ctx context.Context, log *zap.Logger, e Event) error {
	level, ok := levels[e.Name]
	if !ok {
		return failure.Newf(failure.UserInvalidInput, "structured.Emit", "event %q is unknown; use one of %v", e.Name, EventNames())
	}
	line := log.Check(level, e.Message)
	if line == nil {
		return nil
	}
	fields := []zap.Field{
		zap.String("event", string(e.Name)), zap.String("trace_id", e.TraceID), zap.String("span_id", spanID(ctx)),
		zap.String("user_id", e.UserID), zap.String("profile", e.Profile),
	}
	if len(e.Data) > 0 {
		fields = append(fields, zap.Any("data", Redact(e.Data)))
	}
	line.Write(fields...)
	return nil
}

// spanID returns the id of the span in the context ("" if there is none).
func spanID(ctx context.Context) string {
	if s := trace.SpanContextFromContext(ctx); s.HasSpanID() {
		return s.SpanID().String()
	}
	return ""
}
