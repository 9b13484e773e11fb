package progress

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/troupe-dev/troupe/internal/grpcfailure"
	"github.com/troupe-dev/troupe/pkg/failure"
	troupev1 "github.com/troupe-dev/troupe/pkg/gen/troupe/v1"
)

var stages = []Stage{Created, Routed, Executing, Completed, Failed, Cancelled}

// A step of a plan is created, routed, executing, and then completed, failed or cancelled. It can be cancelled
// at any stage before the last. Each stage has its time, and every other transition is rejected.
// Req: OC-29
func TestStep_AdvancesThroughItsStages(t *testing.T) {
	legal := map[Stage][]Stage{
		"":        {Created},
		Created:   {Routed, Cancelled},
		Routed:    {Executing, Cancelled},
		Executing: {Completed, Failed, Cancelled},
	}
	ways := map[Stage][]Stage{
		"": nil, Created: {Created}, Routed: {Created, Routed}, Executing: {Created, Routed, Executing},
		Completed: {Created, Routed, Executing, Completed}, Failed: {Created, Routed, Executing, Failed}, Cancelled: {Created, Cancelled},
	}
	for from, way := range ways {
		for _, next := range append([]Stage{"", "unknown"}, stages...) {
			s := &Step{Name: "a"}
			for i, stage := range way {
				require.NoError(t, s.Advance(stage, time.Unix(int64(i), 0)))
			}
			err := s.Advance(next, time.Unix(100, 0))
			if slices.Contains(legal[from], next) {
				require.NoError(t, err, "%s to %s", from, next)
				require.Equal(t, next, s.Stage())
				require.Equal(t, time.Unix(100, 0), s.ReachedAt(next))
			} else {
				require.True(t, failure.Is(err, failure.AgentState), "%s to %s: %v", from, next, err)
				require.Equal(t, from, s.Stage(), "it stays as it is")
			}
			for i, stage := range way {
				require.Equal(t, time.Unix(int64(i), 0), s.ReachedAt(stage), "each has a time of its own")
			}
			require.Equal(t, s.Stage() == Completed || s.Stage() == Failed || s.Stage() == Cancelled, s.IsEnded())
		}
	}
}

// withSecondsApart sets the times of the events one second apart and returns them.
func withSecondsApart(events ...*troupev1.Event) []*troupev1.Event {
	for i, e := range events {
		e.Time = timestamppb.New(time.Unix(int64(i), 0))
	}
	return events
}

func planEvent(steps ...string) *troupev1.Event {
	p := &troupev1.Plan{}
	for _, s := range steps {
		name, agent, _ := strings.Cut(s, " ")
		p.Steps, p.Agents = append(p.Steps, name), append(p.Agents, agent)
	}
	return &troupev1.Event{Payload: &troupev1.Event_Plan{Plan: p}}
}

func routedEvent(number int32, step, agent, task string) *troupev1.Event {
	return &troupev1.Event{Stage: troupev1.Stage_STAGE_ROUTE, Payload: &troupev1.Event_RoutingDecision{
		RoutingDecision: &troupev1.RoutingDecision{Number: number, Step: step, Target: agent, Task: task},
	}}
}

func startedEvent(number int32) *troupev1.Event {
	return &troupev1.Event{Step: number, Stage: troupev1.Stage_STAGE_EXECUTE, Payload: &troupev1.Event_StepStarted{StepStarted: &troupev1.StepStarted{}}}
}

func finishedEvent(number int32, r *troupev1.StepResult) *troupev1.Event {
	return &troupev1.Event{
		Step: number, Stage: troupev1.Stage_STAGE_EXECUTE,
		Payload: &troupev1.Event_StepFinished{StepFinished: &troupev1.StepFinished{Result: r}},
	}
}

func turnEndedEvent() *troupev1.Event {
	return &troupev1.Event{Payload: &troupev1.Event_TurnResult{TurnResult: &troupev1.TurnResult{}}}
}

// stepLines returns a line for each step: number, name, agent, task, stage, and the times of its stages.
func stepLines(steps []*Step) (all []string) {
	for _, s := range steps {
		p := s.Proto()
		words := []string{string(rune('0' + s.Number)), s.Name, s.Agent, p.GetTask(), strings.ToLower(strings.TrimPrefix(p.GetState().String(), "PLAN_STATE_"))}
		for _, at := range []*timestamppb.Timestamp{p.GetCreated(), p.GetRouted(), p.GetExecuting(), p.GetEnded()} {
			word := "-"
			if at != nil {
				word = string(rune('a' + at.GetSeconds()))
			}
			words = append(words, word)
		}
		all = append(all, strings.Join(words, " "))
	}
	return all
}

func TestStepsFromEvents_FollowsTheEventsOfATurn(t *testing.T) {
	failing := func(mode failure.Mode) *troupev1.StepResult {
		return &troupev1.StepResult{Failure: grpcfailure.ToProto(failure.New(mode, "test", "no"))}
	}
	tasks := &troupev1.StepResult{Tasks: []*troupev1.PlannedTask{{Agent: "x", Text: "find"}, {Agent: "y", Text: "add"}}}
	for name, c := range map[string]struct {
		events []*troupev1.Event
		want   []string
	}{
		"a planner, a loop, and a step that does not run": {
			withSecondsApart(planEvent("plan p", "fork", "sum s", "other o"),
				routedEvent(1, "plan", "p", ""), startedEvent(1), finishedEvent(1, tasks),
				routedEvent(2, "plan[1]", "x", "find"), startedEvent(2), finishedEvent(2, failing(failure.ResourceAPI)),
				routedEvent(3, "plan[2]", "y", "add"), startedEvent(3), finishedEvent(3, &troupev1.StepResult{}),
				routedEvent(4, "sum", "s", ""), startedEvent(4), finishedEvent(4, &troupev1.StepResult{}),
				routedEvent(5, "sum", "s", ""), startedEvent(5), finishedEvent(5, failing(failure.UserCancelled)), turnEndedEvent()),
			[]string{
				"1 plan p  completed a b c d", "2 plan[1] x find failed d e f g", "3 plan[2] y add completed d h i j",
				"4 sum s  completed a k l m", "5 sum s  cancelled n n o p", "0 other o  cancelled a - - q",
			},
		},
		"under way": {
			withSecondsApart(planEvent("plan p", "sum s"), routedEvent(1, "plan", "p", ""), startedEvent(1), finishedEvent(1, tasks), routedEvent(2,
				"plan[1]", "x", "find")),
			[]string{"1 plan p  completed a b c d", "2 plan[1] x find routed d e - -", "0 sum s  created a - - -", "0 plan[2] y add created d - - -"},
		},
		"told again by another owner": {
			withSecondsApart(planEvent("plan p"), routedEvent(1, "plan", "p", ""), startedEvent(1), routedEvent(1, "plan", "p", ""), startedEvent(1),
				finishedEvent(1, tasks), finishedEvent(1, tasks)),
			[]string{"1 plan p  completed a b c f", "0 plan[1] x find created f - - -", "0 plan[2] y add created f - - -"},
		},
		"of before": {
			withSecondsApart(&troupev1.Event{Payload: &troupev1.Event_Plan{Plan: &troupev1.Plan{Steps: []string{"a"}}}}, routedEvent(0, "a", "x", ""),
				startedEvent(1), turnEndedEvent()),
			nil,
		},
	} {
		t.Run(name, func(t *testing.T) {
			require.Equal(t, c.want, stepLines(StepsFromEvents(c.events)))
		})
	}
}
