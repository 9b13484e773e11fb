package workflow

import (
	"testing"
	"testing/fstest"

	"github.com/stretchr/testify/require"

	"github.com/troupe-dev/troupe/pkg/conversation"
)

const manifestHead = "apiVersion: troupe.dev/v1\nkind: Workflow\nmetadata: {name: w}\nspec:\n"

func loadWorkflow(t *testing.T, spec string) (*Set, error) {
	t.Helper()
	return Load(fstest.MapFS{"w.yaml": {Data: []byte(manifestHead + spec)}}, "")
}

func TestLoad_ReadsAGraph(t *testing.T) {
	set, err := loadWorkflow(t, `
  entry: a
  steps:
    a: {agent: x, routes: [b, c], default: c, rules: [{when: {replyTo: y}, next: c}]}
    b: {agent: y, end: true}
    c: {agent: z, next: b}
`)
	require.NoError(t, err)
	flow, ok := set.Find("")
	require.True(t, ok)
	require.Equal(t, "w", flow.Name)
	require.Equal(t, DefaultWindow, flow.HistoryWindow)
	require.Equal(t, []string{"a", "b", "c"}, flow.Reachable())
	require.Equal(t, []string{"x", "y", "z"}, flow.Agents())
	require.True(t, set.UsesAgent("z"))
	require.False(t, set.UsesAgent("nobody"))
}

func TestLoad_ReportsEveryProblem(t *testing.T) {
	for name, c := range map[string]struct{ spec, want string }{
		"no entry":      {"  steps: {a: {agent: x, end: true}}", "entry: names no step; want one of a"},
		"unknown entry": {"  entry: b\n  steps: {a: {agent: x, end: true}}", `w.yaml:6: entry: unknown step "b"; want one of a`},
		"unknown next":  {"  entry: a\n  steps:\n    a: {agent: x, next: b}", `w.yaml:8: step a: next: unknown step "b"; want one of a`},
		"no agent":      {"  entry: a\n  steps: {a: {end: true}}", "step a: agent is missing"},
		"two ways":      {"  entry: a\n  steps: {a: {agent: x, end: true, next: a}}", "want exactly one of next, routes, parallel and end, got 2"},
		"no way":        {"  entry: a\n  steps: {a: {agent: x}}", "want exactly one of next, routes, parallel and end, got 0"},
		"foreign default": {
			"  entry: a\n  steps:\n    a: {agent: x, routes: [b], default: c}\n    b: {agent: x, end: true}",
			`default "c" is not among its routes`,
		},
		"empty rule": {
			"  entry: a\n  steps:\n    a: {agent: x, routes: [b], rules: [{next: b}]}\n    b: {agent: x, end: true}",
			"rule 1 has no condition",
		},
		"unreachable": {"  entry: a\n  steps:\n    a: {agent: x, end: true}\n    b: {agent: x, end: true}", "w.yaml:9: step b cannot be reached from a"},
		"endless":     {"  entry: a\n  steps:\n    a: {agent: x, next: b}\n    b: {agent: x, next: a}", "form an endless cycle"},
		"window": {
			"  entry: a\n  historyWindow: 2000\n  steps: {a: {agent: x, end: true}}",
			"w.yaml:7: historyWindow: 2000 is not between 1 and 100",
		},
		"misspelled field": {"  entri: a\n  steps: {a: {agent: x, end: true}}", `did you mean "entry"?`},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := loadWorkflow(t, "\n"+c.spec)
			require.ErrorContains(t, err, c.want)
		})
	}
}

// Load reports all problems of a file at once.
func TestLoad_ReportsProblemsInLineOrder(t *testing.T) {
	_, err := loadWorkflow(t, `  steps:
    b: {agent: x, next: e}
    a: {agent: x}
    c: {agent: x, end: true, onError: {fallback: f}}
  entry: d
`)
	require.EqualError(t, err, `w.yaml:6: step b: next: unknown step "e"; want one of a, b, c
w.yaml:7: step a: want exactly one of next, routes, parallel and end, got 0
w.yaml:8: step c: onError.fallback: unknown step "f"; want one of a, b, c
w.yaml:9: entry: unknown step "d"; want one of a, b, c`)
}

func TestLoad_ChecksThatAgentsAreDeclared(t *testing.T) {
	_, err := Load(fstest.MapFS{
		"a.yaml": {Data: []byte("apiVersion: troupe.dev/v1\nkind: Agent\nmetadata: {name: research}\nspec: {model: builtin/extractive}\n")},
		"w.yaml": {Data: []byte(manifestHead + "  entry: a\n  steps:\n    a: {agent: reserch, end: true}\n")},
	}, "")
	require.ErrorContains(t, err, `w.yaml:7: step a: unknown agent "reserch"; declared are research`)
}

func TestLoad_RejectsAnUnknownDefaultWorkflow(t *testing.T) {
	_, err := Load(fstest.MapFS{"w.yaml": {Data: []byte(manifestHead + "  entry: a\n  steps: {a: {agent: x, end: true}}")}}, "other")
	require.ErrorContains(t, err, `no workflow is called "other"; there are: w`)
	require.Equal(t, "no workflow is declared here", new(Set).NotFoundText(""))
}

func TestRule_Matches(t *testing.T) {
	user, ai := conversation.User("?"), conversation.Assistant("clarification", "which?")
	reply := Rule{ReplyTo: "clarification"}
	require.True(t, reply.Matches([]conversation.Message{user, ai, user}))
	require.False(t, reply.Matches([]conversation.Message{user}))
	require.False(t, reply.Matches([]conversation.Message{ai, user, user}))
	require.False(t, reply.Matches([]conversation.Message{user, conversation.Assistant("synthesis", "so"), user}))

	twice := Rule{MinUnanswered: 2}
	require.True(t, twice.Matches([]conversation.Message{ai, user, user}))
	require.False(t, twice.Matches([]conversation.Message{user, ai, user}))
}
