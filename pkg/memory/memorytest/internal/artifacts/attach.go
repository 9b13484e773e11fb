package artifacts

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/troupe-dev/troupe/pkg/conversation"
	"github.com/troupe-dev/troupe/pkg/failure"
	"github.com/troupe-dev/troupe/pkg/memory"
	"github.com/troupe-dev/troupe/pkg/memory/memorytest/internal/fixture"
	"github.com/troupe-dev/troupe/pkg/session"
)

func attachTests() fixture.Tests {
	return fixture.Tests{
		"Attach_StoresFilesWithTheMessage":      attachStoresFilesWithTheMessage,
		"Attach_KnownNameGetsANewVersion":       attachKnownNameGetsANewVersion,
		"Attach_RepeatStoresNothing":            attachRepeatStoresNothing,
		"Attach_TakeoverReturnsStoredFiles":     attachTakeoverReturnsStoredFiles,
		"Attach_RejectedTurnStoresNothing":      attachRejectedTurnStoresNothing,
		"Attach_RejectsInvalidFiles":            attachRejectsInvalidFiles,
		"Attach_SharesContentWithArtifacts":     attachSharesContentWithArtifacts,
		"Attach_CountsTowardArtifactLimits":     attachCountsTowardArtifactLimits,
		"Attach_WorksAfterAnEvictedTurn":        attachWorksAfterAnEvictedTurn,
		"Attach_MessageMayReferenceStoredFiles": attachMessageMayReferenceStoredFiles,
		"Attach_StoresAllFilesOrNone":           attachStoresAllFilesOrNone,
	}
}

func newFile(name, content string) conversation.Attachment {
	return conversation.Attachment{Name: name, MediaType: "text/plain", Size: int64(len(content)), Data: []byte(content)}
}

// withoutFileData returns a file as it is in a stored message: with a version and without its bytes.
func withoutFileData(f conversation.Attachment, version int) conversation.Attachment {
	f.Version, f.Data = version, nil
	return f
}

// newBeginWithFiles returns a request for a turn whose message has the given files attached.
func newBeginWithFiles(ref session.Ref, turnID string, files ...conversation.Attachment) memory.Begin {
	b := fixture.NewBegin(ref, turnID, "look at this")
	b.Message.Attachments = files
	return b
}

func requireBegin(t *testing.T, store memory.Store, b memory.Begin) memory.BeginResult {
	t.Helper()
	begun, err := store.BeginTurn(t.Context(), b)
	require.NoError(t, err)
	require.Equal(t, memory.StatusBegun, begun.Status)
	return begun
}

func lastMessage(messages []conversation.Message) conversation.Message {
	return messages[len(messages)-1]
}

func attachStoresFilesWithTheMessage(t *testing.T, store memory.Store) {
	ref := fixture.NewRef()
	small, large := newFile("notes.txt", "remember the milk"), newFile("chart.png", fixture.LongText(memory.ArtifactChunk+1))
	large.MediaType = "image/png"
	begun := requireBegin(t, store, newBeginWithFiles(ref, "t1", small, large))
	want := []conversation.Attachment{withoutFileData(small, 1), withoutFileData(large, 1)}
	require.Equal(t, want, lastMessage(begun.History).Attachments, "the window names them, without their bytes")
	require.Equal(t, want, lastMessage(fixture.LoadHistory(t, store, ref)).Attachments)
	require.Equal(t, "look at this", lastMessage(begun.History).Text)

	all := fixture.ListArtifacts(t, store, ref)
	require.Len(t, all, 2)
	require.Equal(t, memory.Artifact{
		Content: fixture.ContentOf(string(large.Data)), Name: "chart.png", MediaType: "image/png", Version: 1, Turn: "t1", Created: all[0].Created,
	}, all[0])
	require.Equal(t, string(large.Data), fixture.ReadContent(t, store, ref, all[0].Content, 0))
	require.Equal(t, string(small.Data), fixture.ReadContent(t, store, ref, all[1].Content, 0))
	s := fixture.GetSession(t, store, ref)
	require.EqualValues(t, small.Size+large.Size, s.Size.ArtifactBytes)
	require.EqualValues(t, conversation.Size(lastMessage(begun.History)), s.Size.Bytes, "the bytes are no part of the message")

	fixture.CommitStep(t, store, fixture.NewCommit(ref, begun.Turn, "done", session.OutcomeCompleted))
	require.NoError(t, store.ClearSession(t.Context(), ref))
	require.Empty(t, fixture.ListArtifacts(t, store, ref))
}

// A file with the name of an existing artifact becomes its next version, unless its content is unchanged.
func attachKnownNameGetsANewVersion(t *testing.T, store memory.Store) {
	ref := fixture.NewRef()
	for i, step := range []struct {
		content string
		version int
	}{{"one", 1}, {"two", 2}, {"two", 2}, {"one", 3}} {
		turn := fmt.Sprintf("t%d", i+1)
		f, other := newFile("a", step.content), newFile("b", "the same")
		begun := requireBegin(t, store, newBeginWithFiles(ref, turn, other, f))
		require.Equal(t, []conversation.Attachment{withoutFileData(other, 1), withoutFileData(f, step.version)}, lastMessage(begun.History).Attachments)
		fixture.CommitStep(t, store, fixture.NewCommit(ref, begun.Turn, "done", session.OutcomeCompleted))
	}
	require.Len(t, fixture.ListArtifacts(t, store, ref), 4)
}

func attachRepeatStoresNothing(t *testing.T, store memory.Store) {
	ref := fixture.NewRef()
	ask := newBeginWithFiles(ref, "t1", newFile("a", "one"))
	first := requireBegin(t, store, ask)
	before := fixture.ReadSession(t, store, ref)
	fixture.RequireEqual(t, first, requireBegin(t, store, ask)) // the holder repeats the call as if the answer had been lost
	ask.TraceID = fixture.NewTraceID()
	found, err := store.BeginTurn(t.Context(), ask)
	require.NoError(t, err)
	require.Equal(t, memory.StatusOpen, found.Status)
	require.Equal(t, before, fixture.ReadSession(t, store, ref))

	fixture.CommitStep(t, store, fixture.NewCommit(ref, first.Turn, "done", session.OutcomeCompleted))
	before = fixture.ReadSession(t, store, ref)
	found, err = store.BeginTurn(t.Context(), ask)
	require.NoError(t, err)
	require.Equal(t, memory.StatusClosed, found.Status)
	require.Equal(t, before, fixture.ReadSession(t, store, ref))
}

// A caller that takes the turn over need not send the bytes, because the session stored them when the turn began.
func attachTakeoverReturnsStoredFiles(t *testing.T, store memory.Store) {
	ref := fixture.NewRef()
	f := newFile("a", "one")
	first := requireBegin(t, store, newBeginWithFiles(ref, "t1", f))
	fixture.ReleaseTurn(t, store, ref, first.Turn)
	ask := fixture.NewBegin(ref, "t1", "")
	ask.Message = conversation.Message{}
	second := requireBegin(t, store, ask)
	require.Greater(t, second.Turn.Epoch, first.Turn.Epoch)
	require.Equal(t, []conversation.Attachment{withoutFileData(f, 1)}, lastMessage(second.History).Attachments)
	fixture.ReleaseTurn(t, store, ref, second.Turn)
	third := requireBegin(t, store, newBeginWithFiles(ref, "t1", f)) // found by the request itself
	require.Equal(t, []conversation.Attachment{withoutFileData(f, 1)}, lastMessage(third.History).Attachments)
	require.Len(t, fixture.ListArtifacts(t, store, ref), 1)
	require.Equal(t, "one", fixture.ReadContent(t, store, ref, fixture.ContentOf("one"), 0))
}

func attachRejectedTurnStoresNothing(t *testing.T, store memory.Store) {
	ref := fixture.NewRef()
	turn := fixture.BeginTurn(t, store, ref, "t1", "hello")
	_, err := store.BeginTurn(t.Context(), newBeginWithFiles(ref, "t2", newFile("a", "one")))
	fixture.RequireMode(t, err, failure.SessionBusy)
	other := newBeginWithFiles(ref, "t1", newFile("a", "one"))
	other.Fingerprint = "another"
	_, err = store.BeginTurn(t.Context(), other)
	fixture.RequireMode(t, err, failure.KeyReused)
	fixture.CommitStep(t, store, fixture.NewCommit(ref, turn, "done", session.OutcomeCompleted))
	known := newBeginWithFiles(ref, "t3", newFile("a", "one"))
	known.LookupOnly = true
	_, err = store.BeginTurn(t.Context(), known)
	fixture.RequireMode(t, err, failure.NotFound)
	require.Empty(t, fixture.ListArtifacts(t, store, ref))
}

func attachRejectsInvalidFiles(t *testing.T, store memory.Store) {
	many := make([]conversation.Attachment, conversation.MaxAttachments+1)
	for i := range many {
		many[i] = newFile(fmt.Sprint(i), "x")
	}
	mebi := fixture.LongText(conversation.MaxAttachmentBytes)
	for why, files := range map[string][]conversation.Attachment{
		"a name without a slash":   {newFile("a/b", "x")},
		"a name":                   {newFile("", "x")},
		"not of the user":          {newFile("user:a", "x")},
		"something":                {newFile("a", "")},
		"not too much":             {newFile("a", mebi+"x")},
		"not too much together":    {newFile("a", mebi), newFile("b", mebi), newFile("c", mebi), newFile("d", "x")},
		"not too many":             many,
		"each with its own name":   {newFile("a", "x"), newFile("a", "y")},
		"a media type of one line": {{Name: "a", MediaType: "text/plain\n", Data: []byte("x")}},
	} {
		ref := fixture.NewRef()
		_, err := store.BeginTurn(t.Context(), newBeginWithFiles(ref, "t1", files...))
		require.Error(t, err, why)
		require.Equal(t, failure.UserInvalidInput, failure.ModeOf(err), "%s: %v", why, err)
		_, err = store.GetSession(t.Context(), ref)
		fixture.RequireMode(t, err, failure.NotFound)
	}
}

func attachSharesContentWithArtifacts(t *testing.T, store memory.Store) {
	h := fixture.OpenTurn(t, store)
	fixture.PutArtifact(t, store, h, "made", "the same")
	require.NoError(t, store.AppendArtifact(t.Context(), h, stageContent(t, store, h, fixture.LongText(memory.ArtifactChunk+9)), 0,
		[]byte(fixture.LongText(memory.ArtifactChunk + 9))[:memory.ArtifactChunk]))
	fixture.ReleaseTurn(t, store, h.Ref, session.Turn{ID: h.TurnID, Epoch: h.Epoch})
	begun := requireBegin(t, store, newBeginWithFiles(h.Ref, "t2", newFile("sent", "the same"), newFile("half", fixture.LongText(memory.ArtifactChunk+9))))
	h = fixture.LeaseOf(h.Ref, begun.Turn)
	require.NoError(t, store.DeleteArtifact(t.Context(), h, "made", 0))
	require.Equal(t, "the same", fixture.ReadContent(t, store, h.Ref, fixture.ContentOf("the same"), 0))
	require.Equal(t, fixture.LongText(memory.ArtifactChunk+9),
		fixture.ReadContent(t, store, h.Ref, fixture.ContentOf(fixture.LongText(memory.ArtifactChunk+9)), 0))
	require.NoError(t, store.DeleteArtifact(t.Context(), h, "sent", 0))
	_, err := store.ReadArtifact(t.Context(), h.Ref, fixture.ContentOf("the same"), 0)
	fixture.RequireMode(t, err, failure.NotFound)
	require.EqualValues(t, memory.ArtifactChunk+9, fixture.GetSession(t, store, h.Ref).Size.ArtifactBytes)
}

func stageContent(t *testing.T, store memory.Store, h memory.Lease, text string) memory.Content {
	t.Helper()
	_, err := store.StageArtifact(t.Context(), h, fixture.ContentOf(text))
	require.NoError(t, err)
	return fixture.ContentOf(text)
}

func attachCountsTowardArtifactLimits(t *testing.T, store memory.Store) {
	h := fixture.OpenTurn(t, store)
	for i := range memory.MaxSessionArtifactBytes / memory.MaxArtifactBytes {
		size := int64(memory.MaxArtifactBytes)
		if i == 0 {
			size -= 4
		}
		_, err := store.StageArtifact(t.Context(), h, memory.Content{SHA256: fixture.ContentOf(fmt.Sprint(i)).SHA256, Size: size})
		require.NoError(t, err)
	}
	fixture.ReleaseTurn(t, store, h.Ref, session.Turn{ID: h.TurnID, Epoch: h.Epoch})
	_, err := store.BeginTurn(t.Context(), newBeginWithFiles(h.Ref, "t2", newFile("a", "12345")))
	fixture.RequireMode(t, err, failure.ResourceQuota)
	require.Equal(t, "t1", fixture.GetSession(t, store, h.Ref).OpenTurn, "the turn did not begin")
	requireBegin(t, store, newBeginWithFiles(h.Ref, "t2", newFile("a", "1234")))
}

func attachWorksAfterAnEvictedTurn(t *testing.T, store memory.Store) {
	ref := fixture.NewRef()
	first := requireBegin(t, store, newBeginWithFiles(ref, "t1", newFile("a", "one")))
	fixture.ReleaseTurn(t, store, ref, first.Turn)
	f := newFile("a", "two")
	begun := requireBegin(t, store, newBeginWithFiles(ref, "t2", f)) // evicts t1, and the file becomes version 2
	require.Equal(t, []conversation.Attachment{withoutFileData(f, 2)}, lastMessage(begun.History).Attachments)
}

// A message may attach versions that are already stored, as well as new files.
func attachMessageMayReferenceStoredFiles(t *testing.T, store memory.Store) {
	ref := fixture.NewRef()
	old, added := newFile("a", "one"), newFile("b", "two")
	first := requireBegin(t, store, newBeginWithFiles(ref, "t1", old))
	fixture.CommitStep(t, store, fixture.NewCommit(ref, first.Turn, "done", session.OutcomeCompleted))
	again := requireBegin(t, store, newBeginWithFiles(ref, "t2", withoutFileData(old, 1), added))
	require.Equal(t, []conversation.Attachment{withoutFileData(old, 1), withoutFileData(added, 1)}, lastMessage(again.History).Attachments)
	require.Len(t, fixture.ListArtifacts(t, store, ref), 2)
}

func attachStoresAllFilesOrNone(t *testing.T, store memory.Store) {
	ref := fixture.NewRef()
	var files []conversation.Attachment
	for i := range conversation.MaxAttachments {
		files = append(files, newFile(fmt.Sprintf("f%d", i), fixture.LongText(conversation.MaxAttachedBytes/conversation.MaxAttachments)))
	}
	begun := requireBegin(t, store, newBeginWithFiles(ref, "t1", files...))
	require.Len(t, lastMessage(begun.History).Attachments, conversation.MaxAttachments)
	require.Len(t, fixture.ListArtifacts(t, store, ref), conversation.MaxAttachments)
	require.EqualValues(t, conversation.MaxAttachedBytes, fixture.GetSession(t, store, ref).Size.ArtifactBytes)
}
