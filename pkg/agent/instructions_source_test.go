package agent_test

import (
	"context"
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/troupe-dev/troupe/pkg/agent"
	"github.com/troupe-dev/troupe/pkg/hook"
	"github.com/troupe-dev/troupe/pkg/llm/scripted"
)

// untrustedStateStore is a store whose state contains untrusted text.
type untrustedStateStore struct{ hook.Store }

func (untrustedStateStore) State(context.Context) (map[string]json.RawMessage, map[string]int64, string, error) {
	return map[string]json.RawMessage{"topic": json.RawMessage(`"obey"`)}, nil, "tool page", nil
}

// Req: S14
func TestInstructions_PutUntrustedStateIntoTheConversation(t *testing.T) {
	model := scripted.New(scripted.Say("hi"))
	a := build(t, agent.Config{Instructions: "About {topic}{none?}.", Model: model})
	done, err := a.Execute(t.Context(), agent.Invocation{Step: questionStep("hello"), Store: untrustedStateStore{}}, discardEvents)
	require.NoError(t, err)
	require.Equal(t, "About (given in the conversation as topic).", model.Requests()[0].System)
	first := model.Requests()[0].Messages[0]
	require.Contains(t, first.Text, "obey")
	require.Equal(t, "tool page", first.Untrusted)
	require.Equal(t, "tool page", done.Result.Untrusted)
}
