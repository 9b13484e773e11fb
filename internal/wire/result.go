package wire

import (
	"github.com/troupe-dev/troupe/internal/grpcfailure"
	"github.com/troupe-dev/troupe/pkg/execution"
	troupev1 "github.com/troupe-dev/troupe/pkg/gen/troupe/v1"
)

// ResultToProto converts the result of a step. The message is stored and sent.
func ResultToProto(r execution.Result) *troupev1.StepResult {
	result := &troupev1.StepResult{
		Step:                 int32(r.Step),
		Agent:                r.Agent,
		Text:                 r.Text,
		NextAgent:            r.NextAgent,
		InputRequired:        r.InputRequired,
		Stopped:              r.Stopped,
		Observations:         r.Observations,
		ToolsCalled:          r.ToolsCalled,
		Iterations:           int32(r.Iterations),
		MaxIterationsReached: r.MaxIterations,
		Usage:                UsageToProto(r.Usage),
		Confidence:           r.Confidence,
		Sequence:             r.Sequence,
		Failure:              FailureToProto(r.Failure),
		Pending:              PendingToProto(r.Pending),
		Tasks:                tasksToProto(r.Tasks),
		Inherited:            r.Inherited,
		Untrusted:            r.Untrusted,
	}
	if r.Used != nil {
		result.Used = UsedToProto(*r.Used)
	}
	return result
}

// ResultFromProto is the inverse of ResultToProto.
func ResultFromProto(r *troupev1.StepResult) execution.Result {
	if r == nil {
		return execution.Result{}
	}
	return execution.Result{
		Step:          int(r.GetStep()),
		Agent:         r.GetAgent(),
		Text:          r.GetText(),
		NextAgent:     r.GetNextAgent(),
		InputRequired: r.GetInputRequired(),
		Stopped:       r.GetStopped(),
		Observations:  r.GetObservations(),
		ToolsCalled:   r.GetToolsCalled(),
		Iterations:    int(r.GetIterations()),
		MaxIterations: r.GetMaxIterationsReached(),
		Usage:         UsageFromProto(r.GetUsage()),
		Confidence:    r.Confidence,
		Sequence:      r.GetSequence(),
		Failure:       grpcfailure.FromProto(r.GetFailure()),
		Pending:       PendingFromProto(r.GetPending()),
		Tasks:         tasksFromProto(r.GetTasks()),
		Used:          usedFromProtoOrNil(r.GetUsed()),
		Inherited:     r.GetInherited(),
		Untrusted:     r.GetUntrusted(),
	}
}

// The largest amounts of a Usage on the wire, be it of a call, a step or a turn. The smallest is 0.
const (
	maxAmount = 1<<53 - 1 // tokens, or millionths of a dollar
	maxCalls  = 1_000_000 // model calls
)

// clampAmount limits n to the range that the wire allows. Otherwise a wrong number from a provider or a remote
// turn would fail a step that has a valid answer.
func clampAmount(n int64) int64 { return min(max(n, 0), maxAmount) }

// UsageToProto converts the usage of model calls (nil for zero usage).
func UsageToProto(u execution.Usage) *troupev1.Usage {
	if u == (execution.Usage{}) {
		return nil
	}
	return &troupev1.Usage{
		InputTokens: clampAmount(u.InputTokens), OutputTokens: clampAmount(u.OutputTokens), ModelCalls: int32(min(max(u.ModelCalls, 0),
			maxCalls)), CostMicroUsd: clampAmount(u.CostMicros),
		CachedTokens: clampAmount(u.CachedTokens), CacheWriteTokens: clampAmount(u.CacheWriteTokens),
	}
}

// UsageFromProto is the inverse of UsageToProto.
func UsageFromProto(u *troupev1.Usage) execution.Usage {
	return execution.Usage{
		InputTokens: u.GetInputTokens(), OutputTokens: u.GetOutputTokens(), ModelCalls: int(u.GetModelCalls()), CostMicros: u.GetCostMicroUsd(),
		CachedTokens: u.GetCachedTokens(), CacheWriteTokens: u.GetCacheWriteTokens(),
	}
}
