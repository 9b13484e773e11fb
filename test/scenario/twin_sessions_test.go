package scenario

import (
	"context"
	"encoding/json"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/troupe-dev/troupe/pkg/agent"
	"github.com/troupe-dev/troupe/pkg/conversation"
	"github.com/troupe-dev/troupe/pkg/failure"
	"github.com/troupe-dev/troupe/pkg/hook"
	"github.com/troupe-dev/troupe/pkg/llm/scripted"
	"github.com/troupe-dev/troupe/pkg/tool"
)

// handledBy is the config of an agent with a tool that finds things, and with handlers.
func handledBy(handlers ...hook.Handler) func(t *testing.T) agent.Config {
	return func(t *testing.T) agent.Config {
		t.Helper()
		c := lookupAgentConfig(t)
		c.Handlers = handlers
		return c
	}
}

// configWith changes the config of an agent with a tool that finds things.
func configWith(change func(*agent.Config)) func(t *testing.T) agent.Config {
	return func(t *testing.T) agent.Config {
		t.Helper()
		c := lookupAgentConfig(t)
		change(&c)
		return c
	}
}

// modelDown is a reply of a model that does not answer.
func modelDown() scripted.Reply {
	return scripted.Fail(failure.New(failure.ResourceAPI, "test", "The model is down."))
}

// sayAll runs a turn for each text.
func sayAll(texts ...string) func(twinSession) []string {
	return func(s twinSession) (answers []string) {
		for _, text := range texts {
			answers = append(answers, s.say(text))
		}
		return answers
	}
}

// sessionTwinScenarios tell what the tests of sessions in package local test.
var sessionTwinScenarios = map[string]twinScenario{
	"a turn that fails after a tool call": {
		config:  lookupAgentConfig,
		replies: []scripted.Reply{scripted.Say("Hi."), looksUp("oslo"), modelDown(), scripted.Say("Sunny."), scripted.Say("Yes.")},
		play:    sayAll("Hello", "Oslo?", "Again?", "Sure?"),
	},
	"a turn that fails at once": {
		config:  lookupAgentConfig,
		replies: []scripted.Reply{modelDown(), modelDown(), scripted.Say("Sunny.")},
		play:    sayAll("Oslo?", "Oslo?", "Oslo?"),
	},
	"a turn whose tools fail three times": {
		config:  lookupAgentConfig,
		replies: []scripted.Reply{looksUp("error"), looksUp("error"), looksUp("error"), scripted.Say("I cannot.")},
		play:    sayAll("Oslo?", "And now?"),
	},
	"an empty answer": {
		config:  lookupAgentConfig,
		replies: []scripted.Reply{looksUp("oslo"), scripted.Say(" "), scripted.Say("Sunny.")},
		play:    sayAll("Oslo?", "And now?"),
	},
	"a failure that becomes a result": {
		config:  configWith(func(c *agent.Config) { c.OnFailure = agent.Degrade }),
		replies: []scripted.Reply{looksUp("oslo"), modelDown(), scripted.Say("Sunny.")},
		play:    sayAll("Oslo?", "And now?"),
	},
	"an error of a handler": {
		config: handledBy(hook.AfterTools(func(_ context.Context, round *hook.Round) error {
			if round.Info().Prompt == "Oslo?" {
				return failure.New(failure.PolicySecurity, "test", "Not Oslo.")
			}
			return nil
		})),
		replies: []scripted.Reply{looksUp("oslo"), looksUp("bergen"), scripted.Say("Rain.")},
		play:    sayAll("Oslo?", "Bergen?"),
	},
	"an agent whose text is a question": {
		config:  configWith(func(c *agent.Config) { c.AsksUser = true }),
		replies: []scripted.Reply{scripted.Say("Where?"), looksUp("oslo"), scripted.Say("When?")},
		play:    sayAll("Weather?", "Oslo"),
	},
	"a handler that answers": {
		config: handledBy(hook.BeforeAgent(func(_ context.Context, turn *hook.Turn) (string, error) {
			if turn.Info().Prompt == "Open?" {
				return "Closed.", nil
			}
			return "", nil
		})),
		replies: []scripted.Reply{scripted.Say("Hi."), scripted.Say("Yes.")},
		play:    sayAll("Hello", "Open?", "Sure?"),
	},
	"a handler that stops the turn": {
		config: handledBy(hook.BeforeIteration(func(_ context.Context, turn *hook.Turn) error {
			if turn.Info().Prompt == "Oslo?" && len(turn.ToolsCalled()) > 0 {
				turn.Stop("enough")
			}
			return nil
		})),
		replies: []scripted.Reply{looksUp("oslo"), scripted.Say("Yes.")},
		play:    sayAll("Oslo?", "Sure?"),
	},
	"a handler that adds to the answer": {
		config: handledBy(hook.AfterAgent(func(context.Context, *hook.Turn) (string, error) { return "That is all.", nil })),
		replies: []scripted.Reply{
			scripted.Say("Hi."), scripted.Say("Yes."),
		},
		play: sayAll("Hello", "Sure?"),
	},
	"a handler that changes the user's message": {
		config: handledBy(hook.OnUserMessage(func(_ context.Context, turn *hook.Turn) (string, error) {
			return strings.ToUpper(turn.Info().Prompt), nil
		})),
		replies: []scripted.Reply{scripted.Say("Hi."), scripted.Say("Yes.")},
		play:    sayAll("Hello", "Sure?"),
	},
	"tools side by side": {
		config:  configWith(func(c *agent.Config) { c.Parallel = true }),
		replies: []scripted.Reply{looksUp("oslo", "error", "bergen"), scripted.Say("Sun."), scripted.Say("Yes.")},
		play:    sayAll("Where?", "Sure?"),
	},
	"a tool that does not exist": {
		config: lookupAgentConfig,
		replies: []scripted.Reply{
			scripted.Call(conversation.ToolCall{ID: "1", Name: "look", Arguments: `{}`}), looksUp("oslo"), scripted.Say("Sun."), scripted.Say("Yes."),
		},
		play: sayAll("Oslo?", "Sure?"),
	},
	"approvals one by one": {
		config:  askingFirst,
		replies: []scripted.Reply{looksUp("oslo", "bergen"), scripted.Say("Sun and rain."), scripted.Say("Yes.")},
		play: func(s twinSession) []string {
			return []string{s.say("Where?"), s.answer(true), s.answer(false), s.say("Sure?")}
		},
	},
	"an approval in a sequence of agents": {
		config:  askingFirst,
		flow:    true,
		replies: []scripted.Reply{looksUp("oslo"), scripted.Say("Sun."), scripted.Say("It is sunny."), scripted.Say("Yes."), scripted.Say("It still is.")},
		play: func(s twinSession) []string {
			return []string{s.say("Oslo?"), s.answer(true), s.say("Sure?")}
		},
	},
	"a tool of the client": {
		config: func(t *testing.T) agent.Config {
			t.Helper()
			locate, err := tool.Client("locate", "Says where the user is.", json.RawMessage(`{"type":"object"}`))
			require.NoError(t, err)
			return agent.Config{Tools: []tool.Tool{locate}}
		},
		replies: []scripted.Reply{
			scripted.Call(conversation.ToolCall{ID: "1", Name: "locate", Arguments: `{}`}), scripted.Say("Oslo."), scripted.Say("Yes."),
		},
		play: func(s twinSession) []string { return []string{s.say("Where am I?"), s.result("Oslo"), s.say("Sure?")} },
	},
}

// allTwinScenarios returns all scenarios by title.
func allTwinScenarios() map[string]twinScenario {
	all := maps.Clone(twinScenarios)
	maps.Copy(all, sessionTwinScenarios)
	return all
}

// notTwin begins the reason why no scenario repeats a test of sessions.
const notTwin = "not: "

// Reasons of several tests.
const (
	aboutTheProcess = notTwin + "it is about the process that holds the session, and no model is asked in between"
	aboutErrors     = notTwin + "the turn is rejected, so no model is asked"
	aboutUnsaved    = notTwin + "it is about when turns become history, and not about what a model is asked"
	aboutExports    = notTwin + "every scenario compares the exports of both runtimes"
	aboutWarnings   = notTwin + "warnings of a long session do not reach the model; \"a compaction\" and \"more turns than the window\" do"
)

// sessionTests names for each test of sessions in package local the scenario that plays it in both runtimes, or the reason why
// there is none.
var sessionTests = map[string]string{
	"Answer_Approves":                            "an approval",
	"Answer_BringsACredential":                   notTwin + "a credential reaches the tool, and no model",
	"Answer_CallsWaitOneByOne":                   "approvals one by one",
	"Answer_ClientResultIsToolResult":            "a tool of the client",
	"Answer_ContinuesInsideAFlow":                "an approval in a sequence of agents",
	"Answer_Denies":                              "a denial",
	"Answer_FirstOfSeveralProcessesWins":         aboutTheProcess,
	"Answer_InvalidIsRejected":                   aboutErrors,
	"Answer_LateOneDenies":                       notTwin + "it needs a clock that both runtimes share; the model reads the same as in \"a denial\"",
	"Answer_NeedsAJournal":                       aboutUnsaved,
	"Answer_OutlivesPauseAndClose":               aboutTheProcess,
	"Answer_Stops":                               notTwin + "a stopped turn asks no model again",
	"Answer_TextAbandonsPendingCalls":            "a text instead of an approval",
	"Answer_ToAnotherAgentsCallIsRejected":       aboutErrors,
	"Answer_ToSomeCallsKeepsTheRestPending":      "approvals one by one",
	"Answer_TurnActsForTheAnsweringUser":         notTwin + "the actor of a turn reaches tools and providers, and is in no request",
	"Compact_ModelWritesTheSummary":              notTwin + "in a mesh a worker writes the summary in a call of its own, which belongs to no turn",
	"Compact_RunsAtSave":                         aboutUnsaved,
	"Compact_RunsBetweenTurns":                   "a compaction",
	"Compact_SplitsNoRound":                      "a compaction",
	"Compact_WarnsOnceOverAllSessions":           aboutWarnings,
	"Compact_WarnsOncePerCrossing":               aboutWarnings,
	"Export_IncludesUnsaved":                     aboutUnsaved,
	"Export_IsAcceptedByAServer":                 aboutExports,
	"Export_IsWhole":                             aboutExports,
	"Life_AFailedStartOpensNothing":              aboutTheProcess,
	"Life_AnotherIDBeginsAtTurnOne":              "two turns",
	"Life_AnotherSessionContinues":               "another process",
	"Life_ClearKeepsTheSessionUsable":            "a session that is cleared",
	"Life_SessionOfAnotherUserIsNotFound":        aboutErrors,
	"Life_SessionsOfAUserShareStateAndArtifacts": "state in the instructions",
	"Life_StartAndCloseMayBeRepeated":            aboutTheProcess,
	"Life_StartsTheToolsOfItsAgent":              aboutTheProcess,
	"Life_StoresItsStateAsItChanges":             aboutTheProcess,
	"Lost_SlowProcessIsFenced":                   aboutTheProcess,
	"Lost_TurnDoesNotPreventPause":               aboutTheProcess,
	"Lost_TurnIsClosedByANewTurn":                notTwin + "in a mesh another orchestrator takes the lost turn over before a new one can close it",
	"Lost_TurnIsTakenOver":                       notTwin + "which requests a lost process had sent depends on when it was lost; the journal is tested in test/chaos",
	"Lost_TurnKeepsItsLease":                     aboutTheProcess,
	"Lost_TurnOfTheMeshIsNotTakenOver":           aboutTheProcess,
	"Lost_WhileTheTurnWasStored":                 aboutTheProcess,
	"Save_AppendsAfterOtherProcesses":            aboutUnsaved,
	"Save_IsTheOnlyWriteWithNoAutoSave":          aboutUnsaved,
	"Save_KeepsTurnsThatCannotBeStored":          aboutUnsaved,
	"Save_PauseAndCloseSaveToo":                  aboutUnsaved,
	"Save_WritesTurnsInOrder":                    aboutUnsaved,
	"Turn_AFlowKeepsItsAnswer":                   "a sequence of agents",
	"Turn_AnEmptyAnswerKeepsWhatWasFound":        "an empty answer",
	"Turn_AnErrorKeepsTheMessages":               "a turn that fails after a tool call",
	"Turn_AtMaxIterationsHasAnAnswer":            "as many rounds as it may",
	"Turn_AuthEndsWithTheTurn":                   notTwin + "credentials reach tools and providers, and are in no request",
	"Turn_ContinuesWithoutAMessage":              notTwin + "a request of the mesh has a text or answers; it resumes a failed turn with its journal (from), and does not begin another one",
	"Turn_GetsOnlyTheWindow":                     "more turns than the window",
	"Turn_HandlersSeeTheSession":                 "a handler adds messages",
	"Turn_InvalidInputIsRejected":                aboutErrors,
	"Turn_IsCancelledByAReaderThatStops":         notTwin + "a turn of the mesh continues without its reader, unless on_disconnect says CANCEL",
	"Turn_IsCancelledByItsContext":               notTwin + "how far a cancelled turn came depends on time",
	"Turn_IsRejectedWhileAnotherRuns":            aboutErrors,
	"Turn_IsStoredBeforeItsEndIsSeen":            aboutTheProcess,
	"Turn_KeepsState":                            "state in the instructions",
	"Turn_KeepsToolRounds":                       "tool rounds",
	"Turn_LongTurnIsStoredWhole":                 "as many rounds as it may",
	"Turn_OneAgentServesManySessions":            aboutTheProcess,
	"Turn_QuestionIsAnsweredByTheNextTurn":       "a question to the user",
	"Turn_StateThatCannotBeStoredIsAnError":      aboutErrors,
	"Turn_StopAffectsOnlyTheRunningTurn":         "a handler that stops the turn",
	"Turn_TwoTurnsShareTheConversation":          "two turns",
}

var sessionTestName = regexp.MustCompile(`"([A-Z][a-z]+_[A-Z][A-Za-z]+)":`)

// Every test of a session in a program has a twin scenario, or a reason why it has none.
//
// Req: LP-45
func TestTwin_NamesEveryTestOfASession(t *testing.T) {
	files, err := filepath.Glob("../../pkg/agent/local/*_test.go")
	require.NoError(t, err)
	var found []string
	for _, name := range files {
		text, err := os.ReadFile(name)
		require.NoError(t, err)
		for _, m := range sessionTestName.FindAllStringSubmatch(string(text), -1) {
			found = append(found, m[1])
		}
	}
	slices.Sort(found)
	require.Equal(t, slices.Compact(found), slices.Sorted(maps.Keys(sessionTests)))
	scenarios := allTwinScenarios()
	for name, by := range sessionTests {
		_, ok := scenarios[by]
		require.True(t, ok || strings.HasPrefix(by, notTwin), "%s: %q is neither a scenario nor a reason", name, by)
	}
}
