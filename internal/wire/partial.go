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

var recoveries = convert.Enum[failedturn.Recovery, troupev1.RecoveryStrategy]{
	"":                             troupev1.RecoveryStrategy_RECOVERY_STRATEGY_UNSPECIFIED,
	failedturn.Manual:              troupev1.RecoveryStrategy_RECOVERY_STRATEGY_MANUAL,
	failedturn.RetryFailedSteps:    troupev1.RecoveryStrategy_RECOVERY_STRATEGY_RETRY_FAILED_STEPS,
	failedturn.RetryFromCheckpoint: troupev1.RecoveryStrategy_RECOVERY_STRATEGY_RETRY_FROM_CHECKPOINT,
	failedturn.RetryAll:            troupev1.RecoveryStrategy_RECOVERY_STRATEGY_RETRY_ALL,
}

// PartialToProto converts the partial result of a failed turn for clients, and cuts its texts.
func PartialToProto(p failedturn.Progress) *troupev1.PartialResult {
	out := &troupev1.PartialResult{
		CompletedSteps: numbers(p.Completed), FailedSteps: numbers(p.Failed), PartialData: p.Data(),
		FailureMode: grpcfailure.ToProto(failure.New(p.Mode, "", "")).GetMode(), RecoveryStrategy: recoveries.ToProto(p.Recovery()),
		StepTimestamps: map[int32]*timestamppb.Timestamp{}, TotalSteps: int32(p.Total), FailurePoint: int32(p.Point), TraceId: p.Trace,
		CompletionRatio: p.Ratio(), Recoverable: p.Recoverable(), RemainingSteps: int32(p.Remaining()),
	}
	for _, step := range slices.Sorted(maps.Keys(p.Results)) {
		r := p.Results[step]
		out.StepResults = append(out.StepResults, &troupev1.PartialStep{
			Step: int32(step), Agent: r.Agent, Text: conversation.Brief(r.Text, failedturn.MaxTextLength), Failure: FailureToProto(r.Failure),
		})
	}
	for step, at := range p.Ended {
		out.StepTimestamps[int32(step)] = timestamppb.New(at)
	}
	return out
}

func numbers(steps []int) []int32 {
	all := make([]int32, len(steps))
	for i, n := range steps {
		all[i] = int32(n)
	}
	return all
}
