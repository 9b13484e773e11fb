package journal

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/stretchr/testify/require"

	"github.com/troupe-dev/troupe/pkg/conversation"
	"github.com/troupe-dev/troupe/pkg/execution"
	"github.com/troupe-dev/troupe/pkg/failure"
	"github.com/troupe-dev/troupe/pkg/memory"
	"github.com/troupe-dev/troupe/pkg/memory/memorytest/internal/fixture"
	"github.com/troupe-dev/troupe/pkg/session"
)

func roundsTests() fixture.Tests {
	return fixture.Tests{
		"Rounds_AreReturnedWholeAndInOrder":          roundsAreReturnedWholeAndInOrder,
		"Rounds_BelongToTheirAgent":                  roundsBelongToTheirAgent,
		"Rounds_FromLeavesOutEarlierSteps":           roundsFromLeavesOutEarlierSteps,
		"Rounds_OfConcurrentStepsAreSortedByStep":    roundsOfConcurrentStepsAreSortedByStep,
		"Rounds_BeforeContinuesAfterAPage":           roundsBeforeContinuesAfterAPage,
		"Rounds_RejectAnEntryThatIsNotStored":        roundsRejectAnEntryThatIsNotStored,
		"Rounds_RejectInvalidOnes":                   roundsRejectInvalidOnes,
		"Rounds_CountToTheLimitOfTheSession":         roundsCountToTheLimitOfTheSession,
		"Rounds_RepeatedCommitStoresThemOnce":        roundsRepeatedCommitStoresThemOnce,
		"Rounds_OfAStepThatContinuesKeepItsJournal":  roundsOfAStepThatContinuesKeepItsJournal,
		"Rounds_AreRemovedWithTheirMessages":         roundsAreRemovedWithTheirMessages,
		"Rounds_OfAnUnknownSessionAreNotFound":       roundsOfAnUnknownSessionAreNotFound,
		"Rounds_AgentsAreReturnedWhenTheTurnBegins":  roundsAgentsAreReturnedWhenTheTurnBegins,
		"Rounds_StayAfterTheTurnIsTakenOver":         roundsStayAfterTheTurnIsTakenOver,
		"Rounds_OfACommitWithoutThemLeaveNoHistory":  roundsOfACommitWithoutThemLeaveNoHistory,
		"Rounds_UnnamedEntriesAreNotPartOfTheResult": roundsUnnamedEntriesAreNotPartOfTheResult,
	}
}

// runWithRounds runs a turn whose step records the journal of n rounds and commits them: odd rounds by the numbers of
// their entries, even ones with their text. It returns the rounds as they should be loaded.
func runWithRounds(t *testing.T, store memory.Store, ref session.Ref, turnID, agent string, n int) conversation.Rounds {
	t.Helper()
	turn := fixture.BeginTurn(t, store, ref, turnID, "look at pages")
	c, want := commitWithRounds(t, store, ref, turn, agent, n)
	fixture.CommitStep(t, store, c)
	return want
}

// commitWithRounds records the journal of n rounds, and returns the commit of the step and the rounds as they should be
// loaded afterwards.
func commitWithRounds(t *testing.T, store memory.Store, ref session.Ref, turn session.Turn, agent string, n int) (memory.Commit, conversation.Rounds) {
	t.Helper()
	entries := fixture.ModelRounds(n)
	fixture.RecordEntries(t, store, fixture.LeaseOf(ref, turn), 1, entries...)
	c := fixture.NewCommit(ref, turn, "done", session.OutcomeCompleted)
	c.Result.Agent, c.Messages[0].Author = agent, agent
	want := conversation.Rounds{Turn: turn.Number, Step: 1, After: turn.Sequence}
	add := func(m conversation.Message, entry int) {
		want.Messages = append(want.Messages, m)
		if entry > 0 {
			m.Text, m.ToolCalls = "", nil
		}
		c.Rounds = append(c.Rounds, memory.RoundMessage{Message: m, Entry: entry})
	}
	add(conversation.User("Find the third page."), 0) // the task of the step
	for i := range n {
		call, result := entries[3*i].Reply, conversation.Message{
			Role: conversation.RoleTool, Text: entries[3*i+2].Text, ToolCallID: entries[3*i].Reply.ToolCalls[0].ID, Untrusted: "tool read",
		}
		named := i % 2
		add(call, named*entries[3*i].Number)
		add(result, named*entries[3*i+2].Number)
	}
	return c, want
}

func loadRounds(t *testing.T, store memory.Store, ref session.Ref, agent string, from int64) []conversation.Rounds {
	t.Helper()
	all, err := store.LoadRounds(t.Context(), ref, agent, from, nil)
	require.NoError(t, err)
	return all
}

func requireRounds(t *testing.T, want, got []conversation.Rounds) {
	t.Helper()
	require.Empty(t, cmp.Diff(want, got, cmpopts.EquateEmpty(), cmpopts.IgnoreFields(conversation.Message{}, "Sequence", "Turn", "Time")), "want -, got +")
}

// Req: LP-45
func roundsAreReturnedWholeAndInOrder(t *testing.T, store memory.Store) {
	ref := fixture.NewRef()
	first := runWithRounds(t, store, ref, "t1", "echo", 12) // more than 9: numbers are not sorted as texts
	second := runWithRounds(t, store, ref, "t2", "echo", 1)
	got := loadRounds(t, store, ref, "echo", 0)
	requireRounds(t, []conversation.Rounds{first, second}, got)
	for _, r := range got {
		require.NoError(t, conversation.CheckRounds(r.Messages))
	}
}

func roundsBelongToTheirAgent(t *testing.T, store memory.Store) {
	ref, other := fixture.NewRef(), fixture.NewRef()
	echo := runWithRounds(t, store, ref, "t1", "echo", 1)
	research := runWithRounds(t, store, ref, "t2", "research", 2)
	elsewhere := runWithRounds(t, store, other, "t1", "echo", 3)
	requireRounds(t, []conversation.Rounds{echo}, loadRounds(t, store, ref, "echo", 0))
	requireRounds(t, []conversation.Rounds{research}, loadRounds(t, store, ref, "research", 0))
	requireRounds(t, []conversation.Rounds{elsewhere}, loadRounds(t, store, other, "echo", 0))
	require.Empty(t, loadRounds(t, store, ref, "synthesis", 0))
}

func roundsFromLeavesOutEarlierSteps(t *testing.T, store memory.Store) {
	ref := fixture.NewRef()
	first := runWithRounds(t, store, ref, "t1", "echo", 1)
	second := runWithRounds(t, store, ref, "t2", "echo", 1)
	requireRounds(t, []conversation.Rounds{first, second}, loadRounds(t, store, ref, "echo", first.After))
	requireRounds(t, []conversation.Rounds{second}, loadRounds(t, store, ref, "echo", first.After+1))
	requireRounds(t, []conversation.Rounds{second}, loadRounds(t, store, ref, "echo", second.After))
	require.Empty(t, loadRounds(t, store, ref, "echo", second.After+1))
}

// Steps in branches commit in any order, and say nothing in the session.
func roundsOfConcurrentStepsAreSortedByStep(t *testing.T, store memory.Store) {
	ref := fixture.NewRef()
	turn := fixture.BeginTurn(t, store, ref, "t1", "hello")
	c, want := commitWithRounds(t, store, ref, turn, "echo", 1)
	for i := range c.Rounds { // step 1 has the journal; others must not name its entries
		c.Rounds[i] = memory.RoundMessage{Message: want.Messages[i]}
	}
	var wanted []conversation.Rounds
	for step := range 3 {
		want.Step = step + 1
		wanted = append(wanted, want)
	}
	for _, step := range []int{3, 1, 2} {
		c.Result.Step, c.Messages, c.Outcome = step, nil, session.OutcomeOpen
		fixture.CommitStep(t, store, c)
	}
	requireRounds(t, wanted, loadRounds(t, store, ref, "echo", 0))
}

// Req: CO-69
func roundsBeforeContinuesAfterAPage(t *testing.T, store memory.Store) {
	ref := fixture.NewRef()
	first := runWithRounds(t, store, ref, "t1", "echo", 1)
	turn := fixture.BeginTurn(t, store, ref, "t2", "hello")
	c, second := commitWithRounds(t, store, ref, turn, "echo", 1)
	for i := range c.Rounds {
		c.Rounds[i] = memory.RoundMessage{Message: second.Messages[i]}
	}
	all := []conversation.Rounds{first}
	for step := range 3 {
		second.Step = step + 1
		all = append(all, second)
	}
	for _, step := range []int{3, 1, 2} { // steps in branches commit in any order
		c.Result.Step, c.Messages, c.Outcome = step, nil, session.OutcomeOpen
		fixture.CommitStep(t, store, c)
	}
	for i := range all {
		before := all[i]
		before.Messages = nil
		got, err := store.LoadRounds(t.Context(), ref, "echo", 0, &before)
		require.NoError(t, err)
		requireRounds(t, all[:i], got)
	}
	got, err := store.LoadRounds(t.Context(), ref, "echo", second.After, &all[2])
	require.NoError(t, err)
	requireRounds(t, all[1:2], got)
}

func roundsRejectAnEntryThatIsNotStored(t *testing.T, store memory.Store) {
	ref := fixture.NewRef()
	turn := fixture.BeginTurn(t, store, ref, "t1", "hello")
	c, want := commitWithRounds(t, store, ref, turn, "echo", 2)
	c.Rounds[3].Entry = 99
	_, err := store.CommitStep(t.Context(), c)
	fixture.RequireMode(t, err, failure.UserInvalidInput, "fields", "rounds.entry")
	require.ErrorContains(t, err, "99")
	require.Empty(t, loadRounds(t, store, ref, "echo", 0))
	c.Rounds[3].Entry = 3
	fixture.CommitStep(t, store, c)
	requireRounds(t, []conversation.Rounds{want}, loadRounds(t, store, ref, "echo", 0))
}

func roundsRejectInvalidOnes(t *testing.T, store memory.Store) {
	ref := fixture.NewRef()
	turn := fixture.BeginTurn(t, store, ref, "t1", "hello")
	long := conversation.User(strings.Repeat("a", conversation.MaxMessageBytes))
	for name, spoil := range map[string]func(*memory.Commit){
		"a summary": func(c *memory.Commit) { c.Rounds[0].Role = conversation.RoleSummary },
		"an entry":  func(c *memory.Commit) { c.Rounds[0].Entry = -1 },
		"too many":  func(c *memory.Commit) { c.Rounds = make([]memory.RoundMessage, memory.MaxWindow+1) },
		"too long": func(c *memory.Commit) {
			for range memory.MaxWindowBytes/conversation.MaxMessageBytes + 1 {
				c.Rounds = append(c.Rounds, memory.RoundMessage{Message: long})
			}
		},
		"of a step that waits": func(c *memory.Commit) {
			waiting := fixture.NewWaitingCommit(ref, turn, 1)
			c.Result, c.Outcome = waiting.Result, waiting.Outcome
		},
	} {
		c := fixture.NewCommit(ref, turn, "done", session.OutcomeCompleted)
		c.Rounds = []memory.RoundMessage{{Message: conversation.User("a task")}}
		spoil(&c)
		_, err := store.CommitStep(t.Context(), c)
		fixture.RequireMode(t, err, failure.UserInvalidInput)
		require.ErrorContains(t, err, "rounds", name)
	}
	require.Empty(t, loadRounds(t, store, ref, "echo", 0))
}

func roundsCountToTheLimitOfTheSession(t *testing.T, store memory.Store) {
	ref := fixture.NewRef()
	turn := fixture.BeginTurn(t, store, ref, "t1", "hello")
	fixture.RecordEntries(t, store, fixture.LeaseOf(ref, turn), 1, fixture.LongEntries(2, fixture.MaxBytes/2-1000)...)
	c := fixture.NewCommit(ref, turn, "done", session.OutcomeOpen)
	c.Rounds = []memory.RoundMessage{{Message: conversation.Message{Role: conversation.RoleTool, ToolCallID: "a"}, Entry: 1}}
	fixture.CommitStep(t, store, c)
	full := fixture.NewCommit(ref, turn, strings.Repeat("a", fixture.MaxBytes/2+1000), session.OutcomeCompleted)
	full.Base, full.Result.Step = c.Base+1, 2
	_, err := store.CommitStep(t.Context(), full)
	fixture.RequireMode(t, err, failure.SessionFull)
	full.Messages[0].Text = "short"
	full.Rounds = []memory.RoundMessage{{Message: conversation.Message{Role: conversation.RoleTool, Text: strings.Repeat("a", fixture.MaxBytes/2+1000)}}}
	_, err = store.CommitStep(t.Context(), full)
	fixture.RequireMode(t, err, failure.SessionFull)
	full.Rounds = nil
	fixture.CommitStep(t, store, full)
}

func roundsRepeatedCommitStoresThemOnce(t *testing.T, store memory.Store) {
	ref := fixture.NewRef()
	turn := fixture.BeginTurn(t, store, ref, "t1", "hello")
	c, want := commitWithRounds(t, store, ref, turn, "echo", 2)
	for range 3 {
		fixture.CommitStep(t, store, c)
	}
	requireRounds(t, []conversation.Rounds{want}, loadRounds(t, store, ref, "echo", 0))
	c.Rounds = c.Rounds[:1]
	_, err := store.CommitStep(t.Context(), c)
	fixture.RequireMode(t, err, failure.TurnNotOpen)
}

// The journal of a step whose calls waited moves to the turn that continues it.
func roundsOfAStepThatContinuesKeepItsJournal(t *testing.T, store memory.Store) {
	ref := fixture.NewRef()
	turn := fixture.BeginTurn(t, store, ref, "t1", "hello")
	entries := fixture.ModelRounds(1)
	fixture.RecordEntries(t, store, fixture.LeaseOf(ref, turn), 1, entries...)
	fixture.CommitStep(t, store, fixture.NewWaitingCommit(ref, turn, 1))
	begun, err := store.BeginTurn(t.Context(), fixture.NewContinuation(ref, turn, "t2"))
	require.NoError(t, err)
	c := fixture.NewCommit(ref, begun.Turn, "done", session.OutcomeCompleted)
	c.Rounds = []memory.RoundMessage{
		{Message: conversation.Message{Role: conversation.RoleAssistant, Author: "echo"}, Entry: 1},
		{Message: conversation.Message{Role: conversation.RoleTool, ToolCallID: "call-0"}, Entry: 2},
	}
	fixture.CommitStep(t, store, c)
	requireRounds(t, []conversation.Rounds{{Turn: 2, Step: 1, After: begun.Turn.Sequence, Messages: []conversation.Message{
		entries[0].Reply, {Role: conversation.RoleTool, ToolCallID: "call-0", Text: entries[2].Text},
	}}}, loadRounds(t, store, ref, "echo", 0))
}

func roundsAreRemovedWithTheirMessages(t *testing.T, store memory.Store) {
	ref := fixture.NewRef()
	runWithRounds(t, store, ref, "t1", "echo", 2)
	runWithRounds(t, store, ref, "t2", "research", 1)
	last := runWithRounds(t, store, ref, "t3", "echo", 1)
	fixture.CompactSession(t, store, memory.Compact{Ref: ref, Keep: 2})
	requireRounds(t, []conversation.Rounds{last}, loadRounds(t, store, ref, "echo", 0))
	require.Empty(t, loadRounds(t, store, ref, "research", 0))

	require.NoError(t, store.ClearSession(t.Context(), ref))
	require.Empty(t, loadRounds(t, store, ref, "echo", 0))
	next := runWithRounds(t, store, ref, "t4", "echo", 1)
	requireRounds(t, []conversation.Rounds{next}, loadRounds(t, store, ref, "echo", 0))

	_, err := store.DeleteSession(t.Context(), ref)
	require.NoError(t, err)
	_, err = store.LoadRounds(t.Context(), ref, "echo", 0, nil)
	fixture.RequireMode(t, err, failure.SessionDeleted)
}

func roundsOfAnUnknownSessionAreNotFound(t *testing.T, store memory.Store) {
	_, err := store.LoadRounds(t.Context(), fixture.NewRef(), "echo", 0, nil)
	fixture.RequireMode(t, err, failure.NotFound)
}

func roundsAgentsAreReturnedWhenTheTurnBegins(t *testing.T, store memory.Store) {
	ref := fixture.NewRef()
	begun, err := store.BeginTurn(t.Context(), fixture.NewBegin(ref, "t1", "hello"))
	require.NoError(t, err)
	require.Empty(t, begun.Agents)
	fixture.CommitStep(t, store, fixture.NewCommit(ref, begun.Turn, "hi", session.OutcomeCompleted))
	for i, agent := range []string{"echo", "research", "echo"} {
		runWithRounds(t, store, ref, string(rune('a'+i)), agent, 1)
	}
	begin := fixture.NewBegin(ref, "t2", "and now?")
	for range 2 { // also when it is repeated
		begun, err = store.BeginTurn(t.Context(), begin)
		require.NoError(t, err)
		require.ElementsMatch(t, []string{"echo", "research"}, begun.Agents)
	}
}

func roundsStayAfterTheTurnIsTakenOver(t *testing.T, store memory.Store) {
	ref := fixture.NewRef()
	turn := fixture.BeginTurn(t, store, ref, "t1", "hello")
	c, want := commitWithRounds(t, store, ref, turn, "echo", 2)
	c.Outcome = session.OutcomeOpen
	last := fixture.CommitStep(t, store, c)
	next := fixture.TakeOver(t, store, ref, turn)
	requireRounds(t, []conversation.Rounds{want}, loadRounds(t, store, ref, "echo", 0))
	end := fixture.NewCommit(ref, next, "the end", session.OutcomeCompleted)
	end.Result.Step, end.Base = 2, last
	fixture.CommitStep(t, store, end)
	requireRounds(t, []conversation.Rounds{want}, loadRounds(t, store, ref, "echo", 0))
}

func roundsOfACommitWithoutThemLeaveNoHistory(t *testing.T, store memory.Store) {
	ref := fixture.NewRef()
	turn := fixture.BeginTurn(t, store, ref, "t1", "hello")
	c, _ := commitWithRounds(t, store, ref, turn, "echo", 1)
	c.Rounds = nil
	fixture.CommitStep(t, store, c)
	require.Empty(t, loadRounds(t, store, ref, "echo", 0))
}

// What a handler asked the model, and what a tool was about to do, is part of the journal and not of the history.
func roundsUnnamedEntriesAreNotPartOfTheResult(t *testing.T, store memory.Store) {
	ref := fixture.NewRef()
	turn := fixture.BeginTurn(t, store, ref, "t1", "hello")
	aside := execution.Entry{Number: 7, Phase: execution.Done, Reply: conversation.Assistant("echo", "an aside"), SideCall: true}
	fixture.RecordEntries(t, store, fixture.LeaseOf(ref, turn), 1, aside)
	c, want := commitWithRounds(t, store, ref, turn, "echo", 1)
	fixture.CommitStep(t, store, c)
	requireRounds(t, []conversation.Rounds{want}, loadRounds(t, store, ref, "echo", 0))
}
