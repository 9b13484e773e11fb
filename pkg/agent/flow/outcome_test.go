package flow_test

import (
	"context"
	"errors"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/troupe-dev/troupe/pkg/agent"
	"github.com/troupe-dev/troupe/pkg/agent/flow"
	"github.com/troupe-dev/troupe/pkg/event"
	"github.com/troupe-dev/troupe/pkg/hook"
	"github.com/troupe-dev/troupe/pkg/llm/scripted"
)

// If parallel agents end differently, a failure takes precedence over a question to the user, and a question over
// an answer. The order in which they end does not matter.
func TestParallel_FailureWinsOverQuestionAndAnswer(t *testing.T) {
	children := map[string]func() *agent.Agent{
		"answers": func() *agent.Agent {
			return build(t, agent.Config{Name: "answers", Model: scripted.New(scripted.Say("It is red."))})
		},
		"asks": func() *agent.Agent {
			return build(t, agent.Config{Name: "asks", AsksUser: true, Model: scripted.New(scripted.Say("Which one?"))})
		},
		"fails": func() *agent.Agent {
			return build(t, agent.Config{Name: "fails", Model: scripted.New(scripted.Say("Never.")), Handlers: []hook.Handler{
				hook.AfterUserInput(func(context.Context, *hook.Turn) error { return errors.New("broken") }),
			}})
		},
	}
	for _, tc := range []struct {
		names  []string
		reason event.Reason
	}{
		{[]string{"answers", "asks"}, event.InputRequired},
		{[]string{"asks", "answers"}, event.InputRequired},
		{[]string{"answers", "fails"}, event.Failed},
		{[]string{"asks", "fails"}, event.Failed},
		{[]string{"fails", "asks"}, event.Failed},
		{[]string{"answers", "asks", "fails"}, event.Failed},
	} {
		var beside []*agent.Agent
		for _, name := range tc.names {
			beside = append(beside, children[name]())
		}
		team := mustBuildFlow(t)(flow.Parallel(agent.Config{Name: "team"}, beside...))
		_, done, err := runAndDescribe(t.Context(), team, agent.Invocation{Step: questionStep("Where is it?")})
		require.Equal(t, tc.reason, done.Reason, "%v: %v", tc.names, err)
		require.Equal(t, tc.reason == event.Failed, err != nil, "%v", tc.names)
		require.Equal(t, tc.reason == event.InputRequired, done.Result.InputRequired, "%v", tc.names)
	}
}
