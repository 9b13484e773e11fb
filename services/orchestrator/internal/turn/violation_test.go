package turn

import (
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/testing/protocmp"

	"github.com/troupe-dev/troupe/internal/grpcfailure"
	"github.com/troupe-dev/troupe/pkg/failure"
	troupev1 "github.com/troupe-dev/troupe/pkg/gen/troupe/v1"
)

// ownershipViolations returns the ownership violations in the events of a trace.
func ownershipViolations(events []*troupev1.Event) (found []*troupev1.OwnershipViolation) {
	for _, e := range events {
		if v := e.GetOwnershipViolation(); v != nil {
			found = append(found, v)
		}
	}
	return found
}

func countName(all []string, name string) int {
	return len(all) - len(slices.DeleteFunc(slices.Clone(all), func(s string) bool { return s == name }))
}

// A worker must return the context of its step unchanged. A change of the trace_id or of any other field is an
// ownership violation. The trace contains it, and the step fails.
// Req: SO-12
func TestTurn_ReportsAChangedContext(t *testing.T) {
	delta := &troupev1.Event_TextDelta{TextDelta: &troupev1.TextDelta{Text: "said"}}
	for key, forged := range map[string]*troupev1.Event{
		"trace_id": {TraceId: "11111111111111111111111111111111"}, "root_trace_id": {RootTraceId: "11111111111111111111111111111111"},
		"session_id": {SessionId: "another"}, "turn": {Turn: 9}, "step": {Step: 9}, "attempt": {Attempt: 9}, "agent": {Agent: "another"},
	} {
		t.Run(key, func(t *testing.T) {
			rig := newRig(t)
			forged.Payload = delta
			rig.setScript("coordinator", func(s *scriptedStep) error {
				_ = s.sendEvent(forged)
				<-s.stream.Context().Done() // wait until the turn is reclaimed from this attempt
				return s.stream.Context().Err()
			})
			events := runToEnd(t, rig.newRunner(t, "one"), textRequest("s1", "r1"))
			want := &troupev1.OwnershipViolation{Key: key, Owner: "orchestrator", Actor: "worker coordinator", Operation: "agent.ExecuteStep"}
			require.Empty(t, cmp.Diff([]*troupev1.OwnershipViolation{want}, ownershipViolations(events), protocmp.Transform()))
			require.Equal(t, 1, countName(rig.askedAgents(), "coordinator"), "no other instance is to do better")
			finished := slices.IndexFunc(events, func(e *troupev1.Event) bool { return e.GetStepFinished() != nil })
			require.Equal(t, troupev1.FailureMode_FAILURE_MODE_STATE_VIOLATION, events[finished].GetStepFinished().GetResult().GetFailure().GetMode())
			for _, e := range events {
				require.NotEqual(t, "said", e.GetTextDelta().GetText())
				require.Equal(t, events[0].GetTraceId(), e.GetTraceId())
			}
		})
	}
}

// A result for another step than the requested one is a violation.
func TestTurn_ReportsAResultOfAnotherStep(t *testing.T) {
	rig := newRig(t)
	rig.setScript("coordinator", func(s *scriptedStep) error {
		return s.stream.Send(&troupev1.ExecuteStepResponse{Item: &troupev1.ExecuteStepResponse_Result{Result: &troupev1.StepResult{
			Step:  1,
			Agent: "synthesis",
		}}})
	})
	found := ownershipViolations(runToEnd(t, rig.newRunner(t, "one"), textRequest("s1", "r1")))
	require.Len(t, found, 1)
	require.Equal(t, "agent", found[0].GetKey())
}

// The trace contains a rejected write exactly once, whether or not the worker also reports it.
// Req: SO-12
func TestTurn_ReportsAViolationOfAFailedStepOnce(t *testing.T) {
	for name, tells := range map[string]bool{"told": true, "not told": false} {
		t.Run(name, func(t *testing.T) {
			rig := newRig(t)
			v := &troupev1.OwnershipViolation{Key: "trace_id", Owner: "orchestrator", Actor: "worker coordinator", Operation: "memory.CommitStep"}
			rig.setScript("coordinator", func(s *scriptedStep) error {
				if tells {
					if err := s.sendEvent(&troupev1.Event{Payload: &troupev1.Event_OwnershipViolation{OwnershipViolation: v}}); err != nil {
						return err
					}
				}
				why := failure.New(failure.StateViolation, v.GetOperation(), "not yours").WithOwner(v.GetKey(), v.GetOwner(), v.GetActor())
				return s.sendResult(&troupev1.StepResult{Failure: grpcfailure.ToProto(why)})
			})
			events := runToEnd(t, rig.newRunner(t, "one"), textRequest("s1", "r1"))
			require.Empty(t, cmp.Diff([]*troupev1.OwnershipViolation{v}, ownershipViolations(events), protocmp.Transform()))
		})
	}
}
