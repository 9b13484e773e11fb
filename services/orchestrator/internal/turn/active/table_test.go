package active

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/troupe-dev/troupe/pkg/failure"
	"github.com/troupe-dev/troupe/pkg/session"
	"github.com/troupe-dev/troupe/services/orchestrator/internal/trace"
)

var conversation = session.Ref{Tenant: "t", Session: "s1"}

func TestTable_FindsAnActiveTurnBySessionAndByTrace(t *testing.T) {
	table := NewTable()
	turn := NewTurn(conversation, "turn", "trace", 0)
	table.Add(turn)
	require.Same(t, turn, table.FindBySession(conversation))
	require.Same(t, turn, table.FindByTrace(trace.Ref{Tenant: "t", Trace: "trace"}))
	require.Nil(t, table.FindByTrace(trace.Ref{Tenant: "other", Trace: "trace"}))

	successor := NewTurn(conversation, "turn", "trace", 0)
	table.Add(successor)
	table.Remove(turn)
	require.Same(t, successor, table.FindBySession(conversation), "another turn of the session stays")
	table.Remove(successor)
	require.Zero(t, table.SessionCount())
}

// The queue serves requests in the order of arrival, but urgent requests before all others.
func TestTable_QueuesUrgentRequestsFirst(t *testing.T) {
	table := NewTable()
	first, ok := table.Enqueue(conversation, "first", false)
	require.True(t, ok)
	urgent, _ := table.Enqueue(conversation, "urgent", true)
	for n := range MaxWaiting - 2 {
		_, ok := table.Enqueue(conversation, fmt.Sprint("more ", n), false)
		require.True(t, ok)
	}
	_, ok = table.Enqueue(conversation, "too many", false)
	require.False(t, ok)
	shared, ok := table.Enqueue(conversation, "urgent", false)
	require.True(t, ok)
	require.Same(t, urgent, shared, "calls for one turn share a position")

	is, asked, _ := table.CheckFirst(conversation, urgent)
	require.True(t, is)
	asked()
	is, _, changed := table.CheckFirst(conversation, first)
	require.False(t, is)
	table.LeaveQueue(conversation, shared)
	is, _, _ = table.CheckFirst(conversation, first)
	require.False(t, is, "the other call still waits")
	table.LeaveQueue(conversation, urgent)
	<-changed
	is, asked, _ = table.CheckFirst(conversation, first)
	require.True(t, is)
	asked()
}

func TestTable_NamesTheTurnThatMakesASessionBusy(t *testing.T) {
	table := NewTable()
	position, _ := table.Enqueue(conversation, "waits", false)
	table.RecordBusy(conversation, failure.New(failure.SessionBusy, "test", "busy").With("turn_id", "theirs").With("trace_id", "elsewhere"))
	require.Equal(t, "theirs", FailureFact(table.NewBusyError(conversation, "full"), "turn_id"))
	table.Add(NewTurn(conversation, "ours", "here", 0))
	require.Equal(t, "ours", FailureFact(table.NewBusyError(conversation, "full"), "turn_id"))
	require.Equal(t, "here", FailureFact(table.NewBusyError(conversation, "full"), "trace_id"))
	table.LeaveQueue(conversation, position)
}
