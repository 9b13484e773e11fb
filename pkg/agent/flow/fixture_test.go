package flow_test

import (
	"context"
	"encoding/json"
	"errors"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/troupe-dev/troupe/pkg/agent"
	"github.com/troupe-dev/troupe/pkg/conversation"
	"github.com/troupe-dev/troupe/pkg/event"
	"github.com/troupe-dev/troupe/pkg/execution"
	"github.com/troupe-dev/troupe/pkg/llm"
	"github.com/troupe-dev/troupe/pkg/llm/scripted"
	"github.com/troupe-dev/troupe/pkg/tool"
)

// execute runs a step of an agent.
func execute(ctx context.Context, a *agent.Agent, step execution.Step, emit func(event.Event) error) (execution.Result, []conversation.Message, error) {
	done, err := a.Execute(ctx, agent.Invocation{Step: step}, emit)
	return done.Result, done.Messages, err
}

// build returns the agent of a config, named research if it has no name.
func build(t *testing.T, c agent.Config) *agent.Agent {
	t.Helper()
	if c.Name == "" {
		c.Name = "research"
	}
	a, err := agent.New(c)
	require.NoError(t, err)
	return a
}

// lookup returns a tool that finds a text for each query.
func lookup(t *testing.T) tool.Tool {
	t.Helper()
	type in struct {
		Query string `json:"query"`
	}
	found, err := tool.Func("lookup", "Looks something up.", func(_ context.Context, in in) (string, error) {
		switch in.Query {
		case "nothing":
			return "", nil
		case "error":
			return "", errors.New("down")
		}
		return "found " + in.Query, nil
	})
	require.NoError(t, err)
	return found
}

// lookupReply returns a reply that calls lookup.
func lookupReply(queries ...string) scripted.Reply {
	var r scripted.Reply
	for _, q := range queries {
		r.ToolCalls = append(r.ToolCalls, conversation.ToolCall{Name: "lookup", Arguments: `{"query": "` + q + `"}`})
	}
	return r
}

// questionStep returns a step in which the user asks something.
func questionStep(text string) execution.Step {
	return execution.Step{Number: 2, History: []conversation.Message{conversation.User(text)}}
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
