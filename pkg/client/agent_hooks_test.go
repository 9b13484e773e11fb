package client_test

import (
	"context"
	"errors"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/troupe-dev/troupe/pkg/agent"
	"github.com/troupe-dev/troupe/pkg/event"
	"github.com/troupe-dev/troupe/pkg/failure"
	"github.com/troupe-dev/troupe/pkg/hook"
)

// The handlers of a remote agent run before and after the request. They see the messages, can answer in place of
// the remote agent, can reject the request, and can change the answer.
// Req: AD-33
func TestAgent_HandlersRunBeforeAndAfterTheRequest(t *testing.T) {
	for name, tc := range map[string]struct {
		before  func() (string, error)
		asked   int
		answer  string
		message string
		fails   failure.Mode
	}{
		"the remote agent is called":    {func() (string, error) { return "", nil }, 1, "I found it.", "It was red.", ""},
		"a handler answers instead":     {func() (string, error) { return "It is known.", nil }, 0, "It is known.", "It is known.", ""},
		"a handler rejects the request": {func() (string, error) { return "", errors.New("not this") }, 0, "", "", failure.AgentLogic},
	} {
		t.Run(name, func(t *testing.T) {
			m := &fakeMesh{events: flowEvents()}
			var prompts []string
			remote, err := serveMesh(t, m).Agent("research", agent.Config{Handlers: []hook.Handler{
				hook.BeforeAgent(func(_ context.Context, turn *hook.Turn) (string, error) {
					prompts = append(prompts, turn.Info().Prompt)
					return tc.before()
				}),
				hook.AfterAgent(func(context.Context, *hook.Turn) (string, error) { return "It was red.", nil }),
			}})
			require.NoError(t, err)
			var messages []string
			var done event.TurnResult
			for e, failed := range remote.Run(t.Context(), agent.Invocation{Step: newStep()}) {
				if failed != nil {
					err = failed
					break
				}
				switch p := e.Payload.(type) {
				case event.Message:
					messages = append(messages, p.Text)
				case event.TurnResult:
					done = p
				}
			}
			require.Equal(t, tc.fails, failure.ModeOf(err), "%v", err)
			require.Equal(t, []string{"Where is it?"}, prompts)
			require.Len(t, m.requests, tc.asked)
			if tc.fails == "" {
				require.Equal(t, []string{tc.message}, messages)
				require.Contains(t, done.Result.Text, tc.answer)
			}
		})
	}
}
