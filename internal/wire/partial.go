package wire

import (
	"maps"
	"slices"

	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/troupe-dev/troupe/internal/failedturn"
	"github.com/troupe-dev/troupe/internal/grpcfailure"
	"github.com/troupe-dev/troupe/internal/wire/convert"
	"github.com/troupe-dev/troupe/pkg/conversation"
	"github.com/troupe-dev/troupe/pkg/failure"
	troupev1 "github.com/troupe-dev/troupe/pkg/gen/troupe/v1"
)

var recoveryStrategies = convert.Enum[failedturn.Recovery, troupev1.RecoveryStrategy]{
	"":                             troupev1.RecoveryStrategy_RECOVERY_STRATEGY_UNSPECIFIED,
	failedturn.ManualRecovery:      troupev1.RecoveryStrategy_RECOVERY_STRATEGY_MANUAL,
	failedturn.RetryFailedSteps:    troupev1.RecoveryStrategy_RECOVERY_STRATEGY_RETRY_FAILED_STEPS,
	failedturn.RetryFromCheckpoint: troupev1.RecoveryStrategy_RECOVERY_STRATEGY_RETRY_FROM_CHECKPOINT,
	failedturn.RetryAll:            troupev1.RecoveryStrategy_RECOVERY_STRATEGY_RETRY_ALL,
}

// PartialToProto converts the partial result of a failed turn for clients, and cuts its texts.
func PartialToProto(p failedturn.Progress) *troupev1.PartialResult {
	out := &troupev1.PartialResult{
		CompletedSteps: stepsToProto(p.CompletedSteps), FailedSteps: stepsToProto(p.FailedSteps), PartialData: p.CompletedTexts(),
		FailureMode: grpcfailure.ToProto(failure.New(p.Mode, "", "")).GetMode(), RecoveryStrategy: recoveryStrategies.ToProto(p.RecommendedRecovery()),
		StepTimestamps: map[int32]*timestamppb.Timestamp{}, TotalSteps: int32(p.PlannedSteps), FailurePoint: int32(p.FailedAtStep), TraceId: p.Trace,
		CompletionRatio: p.CompletedRatio(), Recoverable: p.IsRecoverable(), RemainingSteps: int32(p.RemainingSteps()),
	}
	for _, step := range slices.Sorted(maps.Keys(p.Results)) {
		r := p.Results[step]
		out.StepResults = append(out.StepResults, &troupev1.PartialStep{
			Step: int32(step), Agent: r.Agent, Text: conversation.Excerpt(r.Text, failedturn.MaxTextLength), Failure: FailureToProto(r.Failure),
		})
	}
	for step, at := range p.EndTimes {
		out.StepTimestamps[int32(step)] = timestamppb.New(at)
	}
	return out
}

func stepsToProto(steps []int) []int32 {
	all := make([]int32, len(steps))
	for i, n := range steps {
		all[i] = int32(n)
	}
	return all
}
