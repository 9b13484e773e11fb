package loop_test

import (
	"bytes"
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/troupe-dev/troupe/internal/hookstore"
	"github.com/troupe-dev/troupe/internal/loop"
	"github.com/troupe-dev/troupe/pkg/conversation"
	"github.com/troupe-dev/troupe/pkg/event"
	"github.com/troupe-dev/troupe/pkg/execution"
	"github.com/troupe-dev/troupe/pkg/failure"
	"github.com/troupe-dev/troupe/pkg/hook"
	"github.com/troupe-dev/troupe/pkg/llm/scripted"
	"github.com/troupe-dev/troupe/pkg/memory"
	"github.com/troupe-dev/troupe/pkg/memory/inmem"
	"github.com/troupe-dev/troupe/pkg/session"
	"github.com/troupe-dev/troupe/pkg/tool"
)

// cameraTool is a tool that returns files and counts its calls. It also changes the state of the session.
type cameraTool struct {
	files []conversation.Attachment
	calls int
}

// tools returns the camera as the tool shoot, which may run only once.
func (c *cameraTool) tools(t *testing.T) *tool.Set {
	t.Helper()
	shoot, err := tool.Func("shoot", "Takes pictures.", func(ctx context.Context, _ struct{}) (tool.Result, error) {
		c.calls++
		return tool.Result{Attachments: c.files}, hook.InTool(ctx).Memory().Set("shots", c.calls)
	})
	require.NoError(t, err)
	set, err := tool.NewSet(shoot)
	require.NoError(t, err)
	return set
}

// openTurn begins a turn in a store of its own, and returns the lease of the turn.
func openTurn(t *testing.T) (memory.Store, memory.Lease) {
	t.Helper()
	store, ref := inmem.New(inmem.Config{}), session.Ref{Tenant: "default", Session: "s"}
	begun, err := store.BeginTurn(t.Context(), memory.Begin{
		Ref: ref, TurnID: "t1", TraceID: "0af7651916cd43dd8448eb211c80319c", Fingerprint: "f",
		Message: conversation.User("hello"), LeaseTTL: memory.MaxLeaseTTL, Window: 1,
	})
	require.NoError(t, err)
	return store, memory.Lease{Ref: ref, TurnID: "t1", Epoch: begun.Turn.Epoch}
}

// newStoredInput returns the input of a turn with a store and a journal.
func newStoredInput(store memory.Store, lease memory.Lease, journal execution.Journal) loop.Input {
	return loop.Input{Journal: journal, RecordFinalReply: true, Control: hook.New(hook.Start{
		Info: hook.Info{Agent: "test", Turn: 1}, Messages: []conversation.Message{conversation.User("Look.")},
		Memory: hook.NewMemory(hookstore.New(store, lease, ""), "test"),
	})}
}

func png(size int) []byte {
	return append([]byte("\x89PNG\r\n\x1a\n"), bytes.Repeat([]byte("x"), size)...)
}

// The files of a result become artifacts before the journal names them. The model reads them with the result, and after
// the loss of the worker it reads the same bytes, without another call of the tool.
//
// Req: CO-74
func TestRun_FilesOfAResultAreArtifacts(t *testing.T) {
	store, lease := openTurn(t)
	journal, shooter := &fakeJournal{}, &cameraTool{files: []conversation.Attachment{
		{Data: png(1)}, {MediaType: "image/png", Data: png(2)}, {Name: "notes.txt", MediaType: "text/plain", Data: []byte("fog")},
	}}
	first := scripted.New(scripted.Call(conversation.ToolCall{ID: "a", Name: "shoot"}), scripted.Say("Fog."))
	l := loop.Loop{Model: first, Tools: shooter.tools(t)}
	out, err := runToEnd(t.Context(), l, newStoredInput(store, lease, journal), ignoreEvents)
	require.NoError(t, err)
	require.Equal(t, "Fog.", out.Text)

	want := []conversation.Attachment{
		{Name: "shoot.png", MediaType: "image/png", Size: 9, Version: 1, Data: png(1)},
		{Name: "shoot_2.png", MediaType: "image/png", Size: 10, Version: 1, Data: png(2)},
		{Name: "notes.txt", MediaType: "text/plain", Size: 3, Version: 1, Data: []byte("fog")},
	}
	result := first.Requests()[1].Messages[2]
	require.Equal(t, want, result.Attachments)
	require.Equal(t, "(no text, only files)", result.Text)
	require.Empty(t, result.UntrustedSource(), "the tool is the author's own")
	require.Equal(t, conversation.AttachmentsWithoutData(want), out.Calls[0].Attachments)
	stored, err := store.ListArtifacts(t.Context(), lease.Ref)
	require.NoError(t, err)
	require.Len(t, stored, 3)
	for _, e := range journal.durable {
		for _, f := range e.Reply.Attachments {
			require.Empty(t, f.Data, "the journal has no bytes")
		}
	}

	second := scripted.New(scripted.Say("Fog."))
	journal.durable = journal.durable[:len(journal.durable)-1] // the final reply was lost
	l.Model = second
	_, err = runToEnd(t.Context(), l, newStoredInput(store, lease, journal), ignoreEvents)
	require.NoError(t, err)
	require.Equal(t, 1, shooter.calls)
	require.Equal(t, first.Requests()[1].Messages, second.Requests()[0].Messages)

	require.NoError(t, store.DeleteArtifact(t.Context(), lease, "shoot.png", 0))
	third := scripted.New(scripted.Say("Fog."))
	journal.durable = journal.durable[:len(journal.durable)-1]
	l.Model = third
	_, err = runToEnd(t.Context(), l, newStoredInput(store, lease, journal), ignoreEvents)
	require.NoError(t, err)
	want[0].Data = nil
	require.Equal(t, want, third.Requests()[0].Messages[2].Attachments, "a deleted file has no bytes")
}

// Without a store the files exist only in the run.
func TestRun_FilesOfAResultNeedNoStore(t *testing.T) {
	shooter := &cameraTool{files: []conversation.Attachment{{Data: png(1)}}}
	model := scripted.New(scripted.Call(conversation.ToolCall{ID: "a", Name: "shoot"}), scripted.Say("Fog."))
	_, err := runToEnd(t.Context(), loop.Loop{Model: model, Tools: shooter.tools(t)}, newInput("Look."), ignoreEvents)
	require.NoError(t, err)
	require.Equal(t, []conversation.Attachment{{Name: "shoot.png", MediaType: "image/png", Size: 9, Data: png(1)}}, model.Requests()[1].Messages[2].Attachments)
}

// A result whose files exceed a limit fails the call. Its message names the limit, and the changes of the tool are
// dropped.
//
// Req: CO-74, CO-39c
func TestRun_FilesBeyondALimitFailTheCall(t *testing.T) {
	many := make([]conversation.Attachment, conversation.MaxAttachments+1)
	for i := range many {
		many[i].Data = png(i)
	}
	large := func(n int) (files []conversation.Attachment) {
		for range n {
			files = append(files, conversation.Attachment{Data: png(conversation.MaxAttachmentBytes - 8)})
		}
		return files
	}
	for name, c := range map[string]struct {
		files []conversation.Attachment
		want  string
	}{
		"too many":           {many, "at most 8"},
		"too large":          {[]conversation.Attachment{{Data: png(conversation.MaxAttachmentBytes)}}, "a file has at most 1048576"},
		"too large together": {large(4), "at most 3145728 together"},
		"of the user":        {[]conversation.Attachment{{Name: "user:a", Data: png(1)}}, "must not begin with user:"},
		"empty":              {[]conversation.Attachment{{Name: "a"}}, "the file is empty"},
	} {
		t.Run(name, func(t *testing.T) {
			store, lease := openTurn(t)
			shooter := &cameraTool{files: c.files}
			model := scripted.New(scripted.Call(conversation.ToolCall{ID: "a", Name: "shoot"}), scripted.Say("No."))
			in := newStoredInput(store, lease, &fakeJournal{})
			out, err := runToEnd(t.Context(), loop.Loop{Model: model, Tools: shooter.tools(t)}, in, ignoreEvents)
			require.NoError(t, err)
			require.Equal(t, event.ToolError, out.Calls[0].Status)
			require.Contains(t, out.Calls[0].Result, "shoot did run, but its result cannot be used: ")
			require.Contains(t, out.Calls[0].Result, c.want)
			require.Empty(t, model.Requests()[1].Messages[2].Attachments)
			require.Empty(t, in.Control.ChangesToStore())
			stored, err := store.ListArtifacts(t.Context(), lease.Ref)
			require.NoError(t, err)
			require.Empty(t, stored)
		})
	}
}

// A worker that has lost its turn ends the step when it stores a file.
func TestRun_FileOfALostTurnEndsTheRun(t *testing.T) {
	store, lease := openTurn(t)
	lease.Epoch--
	shooter := &cameraTool{files: []conversation.Attachment{{Data: png(1)}}}
	model := scripted.New(scripted.Call(conversation.ToolCall{ID: "a", Name: "shoot"}))
	_, err := runToEnd(t.Context(), loop.Loop{Model: model, Tools: shooter.tools(t)}, newStoredInput(store, lease, &fakeJournal{}), ignoreEvents)
	require.True(t, failure.Is(err, failure.Fenced), "%v", err)
}

// Clients see an artifact while the tool that writes it still runs, and see it complete only once it is
// stored.
//
// Req: LP-44
func TestRun_ArtifactsAreToldWhileTheyGrow(t *testing.T) {
	store, lease := openTurn(t)
	begun := make(chan struct{})
	write, err := tool.Func("write", "Writes.", func(ctx context.Context, _ struct{}) (string, error) {
		m := hook.InTool(ctx).Memory()
		if _, err := m.AppendArtifact(ctx, "a.md", "text/markdown", []byte("one "), false); err != nil {
			return "", err
		}
		<-begun // the event came while the tool runs
		version, err := m.AppendArtifact(ctx, "a.md", "text/markdown", []byte("two"), true)
		require.Equal(t, 1, version)
		if err == nil {
			_, err = m.SaveArtifact(ctx, "b.png", "image/png", png(1))
		}
		return "written", err
	})
	require.NoError(t, err)
	set, err := tool.NewSet(write)
	require.NoError(t, err)
	model := scripted.New(scripted.Call(conversation.ToolCall{ID: "a", Name: "write"}), scripted.Say("Done."))
	var updates []event.ArtifactUpdate
	_, err = runToEnd(t.Context(), loop.Loop{Model: model, Tools: set}, newStoredInput(store, lease, nil), func(p event.Payload) error {
		u, ok := p.(event.ArtifactUpdate)
		if !ok {
			return nil
		}
		updates = append(updates, u)
		if !u.Append && !u.Complete {
			close(begun)
		}
		if u.Complete {
			_, err := store.GetArtifact(t.Context(), lease.Ref, u.Name, u.Version)
			require.NoError(t, err, "stored first, told afterwards")
		}
		return nil
	})
	require.NoError(t, err)
	require.Equal(t, []event.ArtifactUpdate{
		{Name: "a.md", MediaType: "text/markdown", Size: 4, Data: []byte("one ")},
		{Name: "a.md", MediaType: "text/markdown", Version: 1, Size: 7, Data: []byte("two"), Append: true, Complete: true},
		{Name: "b.png", MediaType: "image/png", Version: 1, Size: 9, Complete: true},
	}, updates)
}
