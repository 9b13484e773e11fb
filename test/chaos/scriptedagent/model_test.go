package scriptedagent

import (
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/troupe-dev/troupe/internal/stepjournal"
	"github.com/troupe-dev/troupe/pkg/agent"
	"github.com/troupe-dev/troupe/pkg/conversation"
	"github.com/troupe-dev/troupe/pkg/event"
	"github.com/troupe-dev/troupe/pkg/execution"
	"github.com/troupe-dev/troupe/test/chaos/ledger"
)

// A step posts its seven calls in order and answers with their receipts.
func TestAgent_RecordsEveryCallInTheLedger(t *testing.T) {
	l, err := ledger.New()
	require.NoError(t, err)
	t.Cleanup(func() {
		http.DefaultClient.CloseIdleConnections()
		require.NoError(t, l.Close())
	})
	made, err := New(ledger.Client{URL: l.URL(), Worker: "w1"})
	require.NoError(t, err)

	done, err := made.Execute(t.Context(), agent.Invocation{Step: execution.Step{
		TurnID: "turn", Number: 2,
		History: []conversation.Message{conversation.User("s/old"), conversation.Assistant(Name, "old"), conversation.User("s/r")},
		Prior:   []execution.Result{{Step: 1, Agent: Name, Text: "first"}},
	}}, func(event.Event) error { return nil })
	require.NoError(t, err)
	require.Equal(t, "s/r step 2: read#2 | idempotent#4 | at_most_once#6", done.Result.Text)

	var kinds []ledger.Kind
	for _, c := range l.Calls() {
		require.Equal(t, "s/r", c.Mark)
		require.Equal(t, 2, c.Step)
		kinds = append(kinds, c.Kind)
		if c.Kind != ledger.Model {
			require.Equal(t, stepjournal.CallKey("turn", 2, len(kinds)), c.Key, "the stable key of the call")
		}
	}
	m := ledger.Model
	require.Equal(t, []ledger.Kind{m, ledger.Read, m, ledger.Idempotent, m, ledger.AtMostOnce, m}, kinds)
}
