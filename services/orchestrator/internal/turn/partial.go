package turn

import (
	"maps"
	"slices"

	"github.com/troupe-dev/troupe/internal/failedturn"
	"github.com/troupe-dev/troupe/internal/wire"
	"github.com/troupe-dev/troupe/pkg/execution"
	"github.com/troupe-dev/troupe/pkg/failure"
	troupev1 "github.com/troupe-dev/troupe/pkg/gen/troupe/v1"
	"github.com/troupe-dev/troupe/pkg/session"
	"github.com/troupe-dev/troupe/services/orchestrator/internal/trace"
)

// partial is what there is of a turn that failed (OC-26); nil when no step of it is completed.
// What was committed the turn knows; what failed only its trace tells.
func partial(closed session.Turn, told trace.Account) *troupev1.PartialResult {
	if closed.Outcome != session.OutcomeFailed {
		return nil
	}
	p := failedturn.Progress{Trace: closed.Trace, Mode: failure.ModeOf(closed.Failure), Results: map[int]execution.Result{}, Ended: told.Ended}
	for step, r := range told.Finished {
		if r.GetFailure() != nil {
			p.Results[step] = wire.ResultFromProto(r)
		}
	}
	for step, agent := range told.Open {
		p.Results[step] = execution.Result{Step: step, Agent: agent, Failure: closed.Failure}
	}
	for _, r := range closed.Steps {
		p.Results[r.Step] = r
	}
	for _, step := range slices.Sorted(maps.Keys(p.Results)) {
		r := p.Results[step]
		if r.Failure == nil {
			p.Completed = append(p.Completed, step)
			continue
		}
		p.Failed = append(p.Failed, step)
		if p.Point == 0 && !told.Survived[step] && !r.Inherited {
			p.Point = step
		}
	}
	if len(p.Completed) == 0 {
		return nil
	}
	p.Total = max(told.Planned, len(p.Results))
	return wire.PartialToProto(p)
}
