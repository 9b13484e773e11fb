package agent_test

import (
	"context"
	"encoding/json"
	"errors"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/troupe-dev/troupe/pkg/agent"
	"github.com/troupe-dev/troupe/pkg/failure"
	"github.com/troupe-dev/troupe/pkg/llm"
	"github.com/troupe-dev/troupe/pkg/llm/scripted"
	"github.com/troupe-dev/troupe/pkg/tool"
)

func TestNew_ListsEveryInvalidField(t *testing.T) {
	_, err := agent.New(agent.Config{
		Name: "Research Agent", MaxIterations: -1, Capacity: 1 << 20, Timeout: -1, Lifecycle: agent.Lifecycle{Timeout: -1}, OnFailure: "retry",
		Tools: []tool.Tool{new(loggedResource)},
	})
	require.True(t, failure.Is(err, failure.AgentValidation), "%v", err)
	for _, field := range []string{"Name", "Model", "MaxIterations", "Capacity", "; Timeout", "Lifecycle.Timeout", "OnFailure"} {
		require.ErrorContains(t, err, field)
	}
}

func TestNew_FillsInDefaults(t *testing.T) {
	a, err := agent.New(agent.Config{Name: "a", Model: scripted.New(), Description: "Does things."})
	require.NoError(t, err)
	require.Equal(t, "a", a.Name())
	require.Equal(t, "Does things.", a.Description())
	require.Equal(t, agent.DefaultVersion, a.Version())
	require.Equal(t, agent.DefaultCapacity, a.Capacity())
	require.Equal(t, scripted.Name, a.Model())
	require.Empty(t, a.Tools())
}

// loggedResource is a tool that records when it is started and closed.
type loggedResource struct {
	name     string
	log      *[]string
	startErr error
}

func (r *loggedResource) Spec() llm.ToolSpec { return llm.ToolSpec{Name: r.name} }

func (r *loggedResource) Call(context.Context, json.RawMessage) (tool.Result, error) {
	return tool.Result{}, nil
}

func (r *loggedResource) Start(context.Context) error {
	*r.log = append(*r.log, "start "+r.name)
	return r.startErr
}

func (r *loggedResource) Close() error {
	*r.log = append(*r.log, "close "+r.name)
	return nil
}

// Req: LC-30
func TestAgent_StartsToolsInOrderAndClosesInReverse(t *testing.T) {
	var log []string
	a, err := agent.New(agent.Config{
		Name: "a", Model: scripted.New(),
		Tools: []tool.Tool{&loggedResource{name: "one", log: &log}, &loggedResource{name: "two", log: &log}},
	})
	require.NoError(t, err)

	require.NoError(t, a.Close(), "before the start")
	require.NoError(t, a.Start(t.Context()))
	require.NoError(t, a.Start(t.Context()), "again")
	require.NoError(t, a.Close())
	require.NoError(t, a.Close(), "again")
	require.Equal(t, []string{"start one", "start two", "close two", "close one"}, log)
}

func TestAgent_ClosesStartedToolsWhenOneDoesNotStart(t *testing.T) {
	var log []string
	a, err := agent.New(agent.Config{
		Name: "a", Model: scripted.New(),
		Tools: []tool.Tool{
			&loggedResource{name: "one", log: &log},
			&loggedResource{name: "two", log: &log, startErr: errors.New("no such folder")},
			&loggedResource{name: "three", log: &log},
		},
	})
	require.NoError(t, err)

	err = a.Start(t.Context())
	require.True(t, failure.Is(err, failure.ResourceTool), "%v", err)
	require.ErrorContains(t, err, "tool two of agent a did not start: no such folder")
	require.Equal(t, []string{"start one", "start two", "close one"}, log)
	require.NoError(t, a.Close())
	require.Len(t, log, 3)
}
