package turn

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/zap"

	"github.com/troupe-dev/troupe/pkg/failure"
	troupev1 "github.com/troupe-dev/troupe/pkg/gen/troupe/v1"
	"github.com/troupe-dev/troupe/services/orchestrator/internal/trace"
)

// survivingFlow is a workflow that continues with step b when step a fails.
const survivingFlow = `
    a: {agent: research, next: b, onError: {continue: true}}
    b: {agent: synthesis, end: true}
`

// slowTraces is a trace store that delays the write of a step's end.
type slowTraces struct {
	trace.Store
	stepFinished chan struct{} // receives a value for each delayed write
	release      chan struct{}
}

func (s *slowTraces) Append(ctx context.Context, ref trace.Ref, epoch, turnEpoch int64, events []*troupev1.Event, result *troupev1.TurnResult) error {
	if len(collectPayloads(events, (*troupev1.Event).GetStepFinished)) > 0 {
		s.stepFinished <- struct{}{}
		<-s.release
	}
	return s.Store.Append(ctx, ref, epoch, turnEpoch, events, result)
}

// Only the trace contains a handled failure, so a takeover must find it there. Otherwise the step might end
// differently, and other steps would get the numbers of those that already ran.
func TestTurn_TakeoverKeepsAHandledFailure(t *testing.T) {
	rig := newRig(t)
	rig.declareSteps(t, survivingFlow)
	fail := make(chan struct{})
	rig.setScript("research", func(s *scriptedStep) error { <-fail; return failingStep(failure.AgentLogic)(s) })
	runner := rig.newRunner(t, "one")
	store := &slowTraces{Store: runner.cfg.Traces.Store(), stepFinished: make(chan struct{}, 8), release: make(chan struct{})}
	release := sync.OnceFunc(func() { close(store.release) })
	defer release()
	replaceRunner(t, runner, func(c *Config) { c.Traces = trace.New(store, zap.NewNop()) })
	left := runUntilStepStarts(t, runner, textRequest("s1", "r1"), "research")
	close(fail)
	receive(t, store.stepFinished)
	require.Never(t, func() bool { return len(rig.receivedSteps()) > 1 }, 100*time.Millisecond, time.Millisecond)
	release()
	require.NoError(t, receive(t, left))
	require.Equal(t, []string{"research", "synthesis"}, rig.askedAgents())
}
