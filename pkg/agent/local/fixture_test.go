package local_test

import (
	"context"
	"errors"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/troupe-dev/troupe/pkg/agent"
	"github.com/troupe-dev/troupe/pkg/conversation"
	"github.com/troupe-dev/troupe/pkg/llm/scripted"
	"github.com/troupe-dev/troupe/pkg/tool"
)

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
