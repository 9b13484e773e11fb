package publish

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/troupe-dev/troupe/pkg/failure"
	troupev1 "github.com/troupe-dev/troupe/pkg/gen/troupe/v1"
)

// Events are published in the order of the stages, and nothing after the end.
//
// Req: OC-2
func TestStages_RejectAStageOutOfOrder(t *testing.T) {
	const (
		none, initialize, plan    = troupev1.Stage_STAGE_UNSPECIFIED, troupev1.Stage_STAGE_INITIALIZE, troupev1.Stage_STAGE_PLAN
		route, execute, aggregate = troupev1.Stage_STAGE_ROUTE, troupev1.Stage_STAGE_EXECUTE, troupev1.Stage_STAGE_AGGREGATE
		complete, failed          = troupev1.Stage_STAGE_COMPLETE, troupev1.Stage_STAGE_FAILED
		cancelled, input          = troupev1.Stage_STAGE_CANCELLED, troupev1.Stage_STAGE_INPUT_REQUIRED
	)
	ends := []troupev1.Stage{complete, failed, cancelled, input}
	allowed := map[troupev1.Stage][]troupev1.Stage{
		none:       {initialize},
		initialize: append([]troupev1.Stage{plan, route, execute, aggregate}, ends...),
		plan:       append([]troupev1.Stage{route, execute, aggregate}, ends...),
		route:      append([]troupev1.Stage{route, execute, aggregate}, ends...),
		execute:    append([]troupev1.Stage{route, execute, aggregate}, ends...),
		aggregate:  append([]troupev1.Stage{aggregate}, ends...),
		complete:   nil, failed: nil, cancelled: nil, input: nil,
	}
	for at, may := range allowed {
		for n := range troupev1.Stage_name {
			next, o := troupev1.Stage(n), &stages{}
			o.resumeAt(at)
			err := o.advance(next)
			if err == nil {
				require.Contains(t, may, next, "%s behind %s", next, at)
				require.Equal(t, next, o.current)
				continue
			}
			require.NotContains(t, may, next, "%s behind %s", next, at)
			require.True(t, failure.Is(err, failure.AgentLogic))
			require.Equal(t, at, o.current, "and it stays there")
		}
	}
}
