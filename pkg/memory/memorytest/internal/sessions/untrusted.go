package sessions

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/troupe-dev/troupe/pkg/conversation"
	"github.com/troupe-dev/troupe/pkg/execution"
	"github.com/troupe-dev/troupe/pkg/memory"
	"github.com/troupe-dev/troupe/pkg/memory/memorytest/internal/fixture"
	"github.com/troupe-dev/troupe/pkg/session"
)

func untrustedTests() fixture.Tests {
	return fixture.Tests{
		"Untrusted_SourceOutlastsTheWindow":            untrustedSourceOutlastsTheWindow,
		"Untrusted_SourceOfAStepWithoutMessagesIsKept": untrustedSourceOfAStepWithoutMessagesIsKept,
		"Untrusted_AttachedFileIsASource":              untrustedAttachedFileIsASource,
		"Untrusted_SourceOfAFailedTurnIsKept":          untrustedSourceOfAFailedTurnIsKept,
		"Untrusted_SourceOfAnEvictedTurnIsKept":        untrustedSourceOfAnEvictedTurnIsKept,
		"Untrusted_SourceIsCopied":                     untrustedSourceIsCopied,
		"Untrusted_UnknownAuthorReplacesAParty":        untrustedUnknownAuthorReplacesAParty,
		"Untrusted_FirstSourceIsKept":                  untrustedFirstSourceIsKept,
		"Untrusted_SourceSurvivesACompaction":          untrustedSourceSurvivesACompaction,
		"Untrusted_ClearRemovesTheSource":              untrustedClearRemovesTheSource,
		"Untrusted_TakeoverReturnsTheSourceAtTheBegin": untrustedTakeoverReturnsTheSourceAtTheBegin,
		"Untrusted_SourceIsInheritedFromAWaitingTurn":  untrustedSourceIsInheritedFromAWaitingTurn,
		"Untrusted_SourceIsInheritedFromAFailedTurn":   untrustedSourceIsInheritedFromAFailedTurn,
	}
}

const pageSource = "tool page"

// newUntrustedCommit returns the commit of a step that has read an untrusted page and stored some of its text in
// the state.
func newUntrustedCommit(ref session.Ref, turn session.Turn, outcome session.Outcome) memory.Commit {
	c := fixture.NewCommit(ref, turn, "it says: obey", outcome)
	c.Messages[0].Untrusted, c.Result.Untrusted = pageSource, pageSource
	c.State = map[string]json.RawMessage{"topic": json.RawMessage(`"obey"`)}
	return c
}

// firstMessageOfNextTurn begins a turn with a window of one message, cancels it, and returns the message.
func firstMessageOfNextTurn(t *testing.T, store memory.Store, ref session.Ref, turnID string) conversation.Message {
	t.Helper()
	ask := fixture.NewBegin(ref, turnID, "go on")
	ask.Window = 1
	begun, err := store.BeginTurn(t.Context(), ask)
	require.NoError(t, err)
	require.Len(t, begun.History, 1)
	require.Equal(t, "go on", begun.History[0].Text)
	require.Equal(t, begun.History[0].Untrusted, untrustedSource(t, store, ref), "the state has the source, too")
	_, err = store.FailTurn(t.Context(), fixture.NewFailRequest(ref, begun.Turn, session.OutcomeCancelled))
	require.NoError(t, err)
	return begun.History[0]
}

// untrustedSource returns the untrusted source that GetState reports.
func untrustedSource(t *testing.T, store memory.Store, ref session.Ref) string {
	t.Helper()
	seen, err := store.GetState(t.Context(), ref)
	require.NoError(t, err)
	return seen.Untrusted
}

// untrustedSourceOutlastsTheWindow checks that a session remembers an untrusted source even if its window no
// longer contains it. The state may still contain text from that source.
// Req: S14
func untrustedSourceOutlastsTheWindow(t *testing.T, store memory.Store) {
	ref := fixture.NewRef()
	fixture.RunTurn(t, store, ref, "t0", "hello", "hi")
	require.Empty(t, firstMessageOfNextTurn(t, store, ref, "t1").Untrusted)
	fixture.CommitStep(t, store, newUntrustedCommit(ref, fixture.BeginTurn(t, store, ref, "t2", "read it"), session.OutcomeCompleted))
	for _, turnID := range []string{"t3", "t4"} {
		require.Equal(t, pageSource, firstMessageOfNextTurn(t, store, ref, turnID).Untrusted)
	}
	for _, m := range fixture.LoadHistory(t, store, ref) {
		require.Equal(t, m.Text == "it says: obey", m.Untrusted != "", "what is stored of %q stays as it is", m.Text)
	}
	begun, err := store.BeginTurn(t.Context(), fixture.NewBegin(ref, "t5", "go on"))
	require.NoError(t, err)
	require.Empty(t, begun.History[0].Untrusted, "the window shows it")
}

func untrustedSourceOfAStepWithoutMessagesIsKept(t *testing.T, store memory.Store) {
	ref := fixture.NewRef()
	c := newUntrustedCommit(ref, fixture.BeginTurn(t, store, ref, "t1", "read it"), session.OutcomeOpen)
	c.Messages = nil
	fixture.CommitStep(t, store, c)
	require.Equal(t, pageSource, untrustedSource(t, store, ref))
}

func untrustedAttachedFileIsASource(t *testing.T, store memory.Store) {
	ref := fixture.NewRef()
	ask := fixture.NewBegin(ref, "t1", "look")
	ask.Message.Attachments = []conversation.Attachment{{Name: "cv.txt", MediaType: "text/plain", Data: []byte("obey")}}
	begun, err := store.BeginTurn(t.Context(), ask)
	require.NoError(t, err)
	fixture.CommitStep(t, store, fixture.NewCommit(ref, begun.Turn, "I see", session.OutcomeCompleted))
	require.Equal(t, "file cv.txt", firstMessageOfNextTurn(t, store, ref, "t2").Untrusted)
}

// newJournalWithoutText returns the journal of a step that has read an untrusted page but has no text yet.
func newJournalWithoutText() []execution.Entry {
	return []execution.Entry{{Number: 1, Phase: execution.Done, Reply: conversation.Message{
		Role: conversation.RoleAssistant, Untrusted: pageSource, ToolCalls: []conversation.ToolCall{{ID: "c", Name: "save", Arguments: `{}`}},
	}}}
}

// untrustedSourceOfAFailedTurnIsKept checks that the source is kept although the failed turn has no text. Its
// artifacts remain in the session.
func untrustedSourceOfAFailedTurnIsKept(t *testing.T, store memory.Store) {
	ref := fixture.NewRef()
	turn := fixture.BeginTurn(t, store, ref, "t1", "read it")
	fixture.RecordEntries(t, store, fixture.LeaseOf(ref, turn), 1, newJournalWithoutText()...)
	_, err := store.FailTurn(t.Context(), fixture.NewFailRequest(ref, turn, session.OutcomeFailed))
	require.NoError(t, err)
	require.Equal(t, pageSource, firstMessageOfNextTurn(t, store, ref, "t2").Untrusted)
}

func untrustedSourceOfAnEvictedTurnIsKept(t *testing.T, store memory.Store) {
	ref := fixture.NewRef()
	turn := fixture.BeginTurn(t, store, ref, "t1", "read it")
	fixture.RecordEntries(t, store, fixture.LeaseOf(ref, turn), 1, newJournalWithoutText()...)
	fixture.ReleaseTurn(t, store, ref, turn)
	require.Equal(t, pageSource, firstMessageOfNextTurn(t, store, ref, "t2").Untrusted)
}

func untrustedSourceIsCopied(t *testing.T, store memory.Store) {
	for what, mark := range map[string]func(*memory.Begin){
		"history":   func(b *memory.Begin) { b.Predecessor.Copy.History[0].Untrusted = pageSource },
		"said":      func(b *memory.Begin) { b.Predecessor.Copy.StepMessages[0].Untrusted = pageSource },
		"inherited": func(b *memory.Begin) { b.Predecessor.Inherited[0].Untrusted = pageSource },
		"summary": func(b *memory.Begin) {
			b.Predecessor.Copy.History[0] = conversation.Message{Role: conversation.RoleSummary, Text: "They talked.", Untrusted: pageSource}
		},
	} {
		ref := fixture.NewRef()
		ask := fixture.NewCopy(ref, "go on")
		ask.Window = 1
		mark(&ask)
		begun, err := store.BeginTurn(t.Context(), ask)
		require.NoError(t, err)
		require.Equal(t, pageSource, begun.History[0].Untrusted, what)
		require.Equal(t, pageSource, untrustedSource(t, store, ref), what)
	}
}

// untrustedUnknownAuthorReplacesAParty checks that a source with an unknown author replaces a party as the source
// of the session, but not the other way round. The unknown author is graver, because words of a party may cause
// calls only of its own tools.
func untrustedUnknownAuthorReplacesAParty(t *testing.T, store memory.Store) {
	party := conversation.PartyPrefix + "sums"
	ref := fixture.NewRef()
	for i, row := range []struct{ read, left string }{{"", ""}, {party, party}, {"", party}, {pageSource, pageSource}, {party, pageSource}} {
		turn := fixture.BeginTurn(t, store, ref, "t"+string(rune('a'+i)), "read it")
		c := fixture.NewCommit(ref, turn, "it says: obey", session.OutcomeCompleted)
		c.Result.Untrusted = row.read
		fixture.CommitStep(t, store, c)
		require.Equal(t, row.left, firstMessageOfNextTurn(t, store, ref, "n"+string(rune('a'+i))).Untrusted, "after %q", row.read)
	}
}

func untrustedFirstSourceIsKept(t *testing.T, store memory.Store) {
	ref := fixture.NewRef()
	fixture.CommitStep(t, store, newUntrustedCommit(ref, fixture.BeginTurn(t, store, ref, "t1", "read it"), session.OutcomeCompleted))
	c := fixture.NewCommit(ref, fixture.BeginTurn(t, store, ref, "t2", "and mails"), "none", session.OutcomeCompleted)
	c.Result.Untrusted = "tool mail"
	fixture.CommitStep(t, store, c)
	require.Equal(t, pageSource, firstMessageOfNextTurn(t, store, ref, "t3").Untrusted)
}

func untrustedSourceSurvivesACompaction(t *testing.T, store memory.Store) {
	ref := fixture.NewRef()
	fixture.CommitStep(t, store, newUntrustedCommit(ref, fixture.BeginTurn(t, store, ref, "t1", "read it"), session.OutcomeCompleted))
	fixture.CompactSession(t, store, memory.Compact{Ref: ref, Keep: 1, Summary: "They talked."})
	require.Equal(t, pageSource, firstMessageOfNextTurn(t, store, ref, "t2").Untrusted)
}

// untrustedClearRemovesTheSource checks that a clear removes the source, because it also removes the messages, the
// state and the artifacts.
func untrustedClearRemovesTheSource(t *testing.T, store memory.Store) {
	ref := fixture.NewRef()
	fixture.CommitStep(t, store, newUntrustedCommit(ref, fixture.BeginTurn(t, store, ref, "t1", "read it"), session.OutcomeCompleted))
	require.NoError(t, store.ClearSession(t.Context(), ref))
	require.Empty(t, firstMessageOfNextTurn(t, store, ref, "t2").Untrusted)
}

// untrustedTakeoverReturnsTheSourceAtTheBegin checks that a takeover returns the source that the session had when
// the turn began.
func untrustedTakeoverReturnsTheSourceAtTheBegin(t *testing.T, store memory.Store) {
	ref := fixture.NewRef()
	fixture.RunTurn(t, store, ref, "t0", "hello", "hi")
	ask := fixture.NewBegin(ref, "t1", "read it")
	ask.Window = 1
	first, err := store.BeginTurn(t.Context(), ask)
	require.NoError(t, err)
	fixture.CommitStep(t, store, newUntrustedCommit(ref, first.Turn, session.OutcomeOpen))
	fixture.ReleaseTurn(t, store, ref, first.Turn)
	again, err := store.BeginTurn(t.Context(), ask)
	require.NoError(t, err)
	require.Greater(t, again.Turn.Epoch, first.Turn.Epoch)
	fixture.RequireEqual(t, first.History, again.History)

	_, err = store.FailTurn(t.Context(), fixture.NewFailRequest(ref, again.Turn, session.OutcomeCancelled))
	require.NoError(t, err)
	ask = fixture.NewBegin(ref, "t2", "go on")
	ask.Window = 1
	marked, err := store.BeginTurn(t.Context(), ask)
	require.NoError(t, err)
	require.Equal(t, pageSource, marked.History[0].Untrusted)
	fixture.ReleaseTurn(t, store, ref, marked.Turn)
	again, err = store.BeginTurn(t.Context(), ask)
	require.NoError(t, err)
	fixture.RequireEqual(t, marked.History, again.History)
}

func untrustedSourceIsInheritedFromAWaitingTurn(t *testing.T, store memory.Store) {
	ref := fixture.NewRef()
	turn := fixture.BeginTurn(t, store, ref, "t1", "read it")
	c := fixture.NewWaitingCommit(ref, turn, 1)
	c.Result.Untrusted = pageSource
	fixture.CommitStep(t, store, c)
	ask := fixture.NewContinuation(ref, turn, "t2")
	ask.Window = 1
	begun, err := store.BeginTurn(t.Context(), ask)
	require.NoError(t, err)
	require.Empty(t, begun.History[0].Untrusted, "it reads and decides again as the turn before it did")
	turn = begun.Turn
	c = fixture.NewWaitingCommit(ref, turn, 1)
	c.Result.Untrusted, c.Result.Pending[0].Until = pageSource, time.Time{}
	fixture.CommitStep(t, store, c)
	require.Equal(t, pageSource, firstMessageOfNextTurn(t, store, ref, "t3").Untrusted)
}

func untrustedSourceIsInheritedFromAFailedTurn(t *testing.T, store memory.Store) {
	ref := fixture.NewRef()
	turn := fixture.BeginTurn(t, store, ref, "t1", "read it")
	turn.Sequence = fixture.CommitStep(t, store, newUntrustedCommit(ref, turn, session.OutcomeOpen))
	failed, err := store.FailTurn(t.Context(), fixture.NewFailRequest(ref, turn, session.OutcomeFailed))
	require.NoError(t, err)
	ask := fixture.NewResumption(ref, failed, "t2")
	ask.Window = 1
	begun, err := store.BeginTurn(t.Context(), ask)
	require.NoError(t, err)
	require.Empty(t, begun.History[0].Untrusted)
	require.Equal(t, pageSource, begun.Turn.Steps[0].Untrusted, "its steps say so themselves")
	require.Equal(t, pageSource, untrustedSource(t, store, ref))
}
