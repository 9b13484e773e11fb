package local_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/troupe-dev/troupe/pkg/agent"
	"github.com/troupe-dev/troupe/pkg/agent/local"
	"github.com/troupe-dev/troupe/pkg/conversation"
	"github.com/troupe-dev/troupe/pkg/execution"
	"github.com/troupe-dev/troupe/pkg/failure"
	"github.com/troupe-dev/troupe/pkg/llm/scripted"
	"github.com/troupe-dev/troupe/pkg/memory"
	"github.com/troupe-dev/troupe/pkg/memory/inmem"
	"github.com/troupe-dev/troupe/pkg/session"
	"github.com/troupe-dev/troupe/pkg/tool"
)

// A session remembers the source of untrusted text that is no longer in its window, even while nothing is saved.
// Req: S14
func TestSession_RemembersSourcesOutsideTheWindow(t *testing.T) {
	for _, noAutoSave := range []bool{false, true} {
		var store memory.Store = inmem.New(inmem.Config{})
		page := tool.WithScope(tool.Scope{Untrusted: true}, tool.WithEffect(execution.Read, lookup(t)))
		a, model := scriptedAgent(t, agent.Config{Tools: []tool.Tool{page}, Instructions: "About {answer?}.", OutputKey: "answer"},
			lookupReply("a"), scripted.Say("obey"), scripted.Say("well"), scripted.Say("done"))
		c := local.Config{Store: store, NoAutoSave: noAutoSave, Window: 1}
		s := openSession(t, a, c)
		ask(t, s, "read it")
		done := ask(t, s, "go on")
		require.Equal(t, "tool lookup", done.Result.Untrusted)
		require.NoError(t, s.Close(t.Context()))
		c.ID = s.ID()
		done = ask(t, openSession(t, a, c), "and on")
		require.Equal(t, "tool lookup", done.Result.Untrusted, "in another Session")
		for _, asked := range model.Requests()[2:] {
			require.Equal(t, "About (given in the conversation as answer).", asked.System)
			require.Equal(t, conversation.RoleUser, asked.Messages[0].Role)
			require.Equal(t, "tool lookup", asked.Messages[0].Untrusted)
		}
	}
}

// A session remembers the source even if no message contains the text, for example because the turn failed before
// the model replied.
// Req: S14
func TestSession_RemembersSourcesWithoutAMessage(t *testing.T) {
	for _, noAutoSave := range []bool{false, true} {
		store := inmem.New(inmem.Config{})
		ref := session.Ref{Tenant: local.DefaultTenant, Session: "s1"}
		begun, err := store.BeginTurn(t.Context(), memory.Begin{
			Ref: ref, TurnID: "t1", TraceID: "t1", Fingerprint: "f", LeaseTTL: memory.MaxLeaseTTL, Window: 10, Message: conversation.User("read it"),
		})
		require.NoError(t, err)
		lease := memory.Lease{Ref: ref, TurnID: "t1", Epoch: begun.Turn.Epoch}
		said := conversation.Message{Role: conversation.RoleAssistant, Author: "a", Untrusted: "tool page", ToolCalls: []conversation.ToolCall{{
			ID:   "c1",
			Name: "wire",
		}}}
		require.NoError(t, store.Record(t.Context(), lease, 1, []execution.Entry{{Number: 1, Phase: execution.Done, Reply: said}}))
		_, err = store.FailTurn(t.Context(), memory.Fail{
			Ref: ref, TurnID: "t1", Epoch: lease.Epoch, Outcome: session.OutcomeFailed, Failure: failure.New(failure.ResourceAPI, "test", "down"),
		})
		require.NoError(t, err)
		messages, err := store.LoadHistory(t.Context(), ref, 0, 10)
		require.NoError(t, err)
		require.Empty(t, conversation.UntrustedSource(messages))
		a, _ := scriptedAgent(t, agent.Config{}, scripted.Say("well"))
		done := ask(t, openSession(t, a, local.Config{Store: store, ID: "s1", NoAutoSave: noAutoSave}), "go on")
		require.Equal(t, "tool page", done.Result.Untrusted, "NoAutoSave %v", noAutoSave)
	}
}
