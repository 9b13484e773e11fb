package app

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/troupe-dev/troupe/internal/memoryrpc"
	"github.com/troupe-dev/troupe/pkg/conversation"
	"github.com/troupe-dev/troupe/pkg/execution"
	"github.com/troupe-dev/troupe/pkg/failure"
	"github.com/troupe-dev/troupe/pkg/memory"
	"github.com/troupe-dev/troupe/pkg/session"
	"github.com/troupe-dev/troupe/test/redistest"
)

// A journal write that arrives after the commit of its step is rejected and not logged.
func TestApp_DoesNotLogAJournalWriteAfterItsCommit(t *testing.T) {
	r := runApp(t, "redis://"+redistest.Start(t))
	<-r.ready
	store := memoryrpc.New(r.conn)
	begun, err := beginTurn(t.Context(), r, "s1")
	require.NoError(t, err)
	hold := memory.Lease{Ref: session.Ref{Session: "s1"}, TurnID: begun.Turn.ID, Epoch: begun.Turn.Epoch}
	write := func(step int) error {
		return store.Record(t.Context(), hold, step, []execution.Entry{{Number: 1, Phase: execution.Intent, Tool: "search"}})
	}
	_, err = store.CommitStep(t.Context(), memory.Commit{
		Ref: hold.Ref, TurnID: hold.TurnID, Epoch: hold.Epoch, Base: begun.Turn.Sequence,
		Messages: []conversation.Message{conversation.Assistant("echo", "hi")}, Result: execution.Result{Step: 1, Agent: "echo"},
	})
	require.NoError(t, err)
	require.Equal(t, failure.TurnNotOpen, failure.ModeOf(write(1)))
	require.Zero(t, r.logs.FilterMessage("call rejected").Len())

	hold.Epoch++
	require.Equal(t, failure.Fenced, failure.ModeOf(write(2)))
	require.Equal(t, 1, r.logs.FilterMessage("call rejected").Len())
}
