package testrun_test

import (
	"strings"
	"testing"
	"testing/fstest"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	"go.uber.org/zap"

	"github.com/troupe-dev/troupe/services/standalone/testrun"
)

func TestMain(m *testing.M) {
	// The Gemini SDK starts a goroutine when it is imported, so the leak check ignores it.
	goleak.VerifyTestMain(m, goleak.IgnoreAnyFunction("go.opencensus.io/stats/view.(*worker).start"))
}

const agentManifest = `apiVersion: troupe.dev/v1
kind: Agent
metadata: {name: clerk}
spec:
  model: anthropic/none
  tools: [{builtin: current_time, with: {timeZone: UTC}}]
  plugins: [{guardrails: {input: {forbid: [secret]}, answer: I will not say.}}]
`

// runTest runs a test with the given spec, and returns its errors.
func runTest(t *testing.T, spec string) []string {
	t.Helper()
	var all []testrun.Result
	err := testrun.Run(t.Context(), testrun.Config{Folder: fstest.MapFS{
		"agent.yaml": {Data: []byte(agentManifest)},
		"tests.yaml": {Data: []byte("apiVersion: troupe.dev/v1\nkind: Test\nmetadata: {name: it}\nspec:\n" + spec)},
	}, Log: zap.NewNop()}, func(r testrun.Result) { all = append(all, r) })
	require.NoError(t, err)
	require.Len(t, all, 1)
	require.Equal(t, "it", all[0].Name)
	var wrong []string
	for _, err := range all[0].Errors {
		wrong = append(wrong, strings.Split(err.Error(), "\n")...)
	}
	return wrong
}

const twoReplies = `  model:
    - call: {current_time: {}}
    - say: It is noon.
    - say: Still noon.
`

func TestRun_PassesWhenResultsMatch(t *testing.T) {
	require.Empty(t, runTest(t, twoReplies+`
  agent: clerk
  turns:
    - {say: The time, want: {text: noon, tools: [current_time], found: UTC, warnings: []}}
    - {say: And now, want: {text: Still, tools: []}}
    - {say: Tell me a secret, want: {text: I will not say., warnings: [GUARDRAIL_TRIPPED]}}
`))
	require.Empty(t, runTest(t, "  model: [{fail: it is down}]\n  turns: [{say: hi, want: {fails: is down}}]\n"))
	require.Empty(t, runTest(t,
		"  model: [{call: {current_time: , unknown: {a: 1}}}, {say: So it is.}]\n  turns: [{say: hi, want: {tools: [current_time, unknown]}}]\n"))
}

func TestRun_ReportsEachMismatch(t *testing.T) {
	for name, c := range map[string]struct {
		spec string
		want []string
	}{
		"the answer": {
			twoReplies + "  turns:\n    - say: What time is it?\n      want:\n        text: midnight\n        tools: []\n        warnings: [X]\n        fails: never\n    - say: And now?\n",
			[]string{
				`tests.yaml:15: turns[0].want.fails: it did not fail, and answered "It is noon."; want a failure with "never" in it`,
				`tests.yaml:12: turns[0].want.text: the answer is "It is noon."; want "midnight" in it`,
				`tests.yaml:13: turns[0].want.tools: called were current_time; want none`,
				`tests.yaml:14: turns[0].want.warnings: given were none; want X`,
			},
		},
		"what was found": {
			"  model: [{say: It is noon.}]\n  turns: [{say: hi, want: {found: noon}}]\n", []string{`tests.yaml:6: turns[0].want.found: the tools gave none; want "noon" in one of them`},
		},
		"a failure": {
			"  model: [{fail: it is down}]\n  turns:\n    - say: hi\n", []string{`tests.yaml:7: turns[0]: it is down`},
		},
		"another failure": {
			"  model: [{fail: it is down}]\n  turns:\n    - say: hi\n      want: {fails: it is up}\n", []string{`tests.yaml:8: turns[0].want.fails: it failed with "it is down"; want "it is up" in it`},
		},
		"a script that is too long": {
			twoReplies + "  turns: [{say: The time}]\n", []string{`tests.yaml:8: model[2]: the agent did not ask for this reply; remove it, or check the earlier ones`},
		},
		"a script that is too short": {
			"  model: [{call: {current_time: {}}}]\n  turns: [{say: The time}]\n", []string{`tests.yaml:6: turns[0]: the script ended before request 2`},
		},
		"a typing error": {
			"  turns: [{say: hi, wants: {text: x}}]\n", []string{`tests.yaml:5: unknown field "turns[0].wants"; did you mean "want"?`},
		},
		"no turn":       {"  agent: clerk\n", []string{`tests.yaml:5: turns: missing; add what the user says`}},
		"no such agent": {"  agent: clark\n  turns: [{say: hi}]\n", []string{`agent "clark" is not declared: did you mean "clerk"?`}},
		"two things":    {"  model: [{say: a, fail: b}]\n  turns: [{say: hi}]\n", []string{`tests.yaml:5: model[0]: want exactly one of say, call and fail`}},
		"no arguments":  {"  model: [{call: current_time}]\n  turns: [{say: hi}]\n", []string{`tests.yaml:5: model[0].call: want {tool: {argument: value}}`}},
	} {
		t.Run(name, func(t *testing.T) {
			require.Empty(t, cmp.Diff(c.want, runTest(t, c.spec)))
		})
	}
}

// A test without a script calls the declared model.
func TestRun_UsesTheDeclaredModelWithoutAScript(t *testing.T) {
	wrong := runTest(t, "  turns: [{say: hi}]\n")
	require.Len(t, wrong, 1)
	require.Contains(t, wrong[0], "agent.yaml:5: ")
	require.Contains(t, wrong[0], "ANTHROPIC_API_KEY")
}

func TestRun_FailsForAFolderWithoutTests(t *testing.T) {
	err := testrun.Run(t.Context(), testrun.Config{Folder: fstest.MapFS{"agent.yaml": {Data: []byte(agentManifest)}}}, nil)
	require.ErrorContains(t, err, "the folder declares no test; want a document of kind Test")
}
