package cursor

import (
	"testing"
	"testing/fstest"

	"github.com/stretchr/testify/require"

	"github.com/troupe-dev/troupe/pkg/conversation"
	troupev1 "github.com/troupe-dev/troupe/pkg/gen/troupe/v1"
	"github.com/troupe-dev/troupe/services/orchestrator/internal/workflow"
)

// helpDeskFlow is a workflow with a root and two agents. Only one of the two may keep the conversation.
const helpDeskFlow = `
apiVersion: troupe.dev/v1
kind: Workflow
metadata: {name: desk}
spec:
  entry: reception
  steps:
    reception:
      agent: reception
      routes: [billing, directions]
      rules:
        - when: {replyTo: billing}
          next: billing
    billing: {agent: billing, end: true}
    directions: {agent: directions, end: true}
`

// A new message that does not answer a call goes to the agent that spoke last, if the workflow allows it.
// Otherwise it goes to the root. Another test covers messages that answer a call.
// Req: AD-26
func TestDecide_NewMessageGoesToTheLastAgentOrTheRoot(t *testing.T) {
	set, err := workflow.Load(fstest.MapFS{"desk.yaml": {Data: []byte(helpDeskFlow)}}, "")
	require.NoError(t, err)
	flow, ok := set.Find("desk")
	require.True(t, ok)
	said := func(authors ...string) (history []conversation.Message) {
		for _, author := range authors {
			history = append(history, conversation.User("And now?"), conversation.Assistant(author, "So."))
		}
		return append(history, conversation.User("And then?"))
	}
	for _, c := range []struct {
		before   []string
		want     string
		strategy troupev1.RoutingStrategy
	}{
		{nil, "reception", troupev1.RoutingStrategy_ROUTING_STRATEGY_FIXED},
		{[]string{"billing"}, "billing", troupev1.RoutingStrategy_ROUTING_STRATEGY_RULE},
		{[]string{"billing", "billing"}, "billing", troupev1.RoutingStrategy_ROUTING_STRATEGY_RULE},
		{[]string{"directions"}, "reception", troupev1.RoutingStrategy_ROUTING_STRATEGY_FIXED},
		{[]string{"billing", "directions"}, "reception", troupev1.RoutingStrategy_ROUTING_STRATEGY_FIXED},
		{[]string{"directions", "billing"}, "billing", troupev1.RoutingStrategy_ROUTING_STRATEGY_RULE},
		{[]string{"unknown agent"}, "reception", troupev1.RoutingStrategy_ROUTING_STRATEGY_FIXED},
	} {
		d, err := Decide(Input{Workflow: flow, History: said(c.before...)})
		require.NoError(t, err)
		require.Equal(t, c.want, d.Step.Agent, "after %v", c.before)
		require.Equal(t, c.strategy, d.Strategy, "after %v", c.before)
	}
}
