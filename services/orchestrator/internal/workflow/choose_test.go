package workflow

import (
	"os"
	"regexp"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"

	"github.com/troupe-dev/troupe/services/orchestrator/internal/routing/choice"
	"github.com/troupe-dev/troupe/services/orchestrator/internal/routing/selection"
)

// chooseWorkflow returns a workflow whose first step chooses by the given declaration.
func chooseWorkflow(more string) string {
	return "  entry: a\n  steps:\n    a:\n      routes: [b, c]\n" + more + "    b: {agent: x, end: true}\n    c: {agent: y, end: true}\n"
}

// toolsWorkflow returns a workflow whose step has the given declaration of tools.
func toolsWorkflow(more string) string {
	return "  entry: a\n  steps:\n    a:\n      agent: x\n      end: true\n" + more
}

func TestLoad_ReadsHowAStepChooses(t *testing.T) {
	for declared, want := range map[string]choice.Policy{
		"":                                    {Strategy: selection.Capability},
		"      choose: {needs: [tax, law]}\n": {Strategy: selection.Capability, Needs: []string{"tax", "law"}},
		"      choose: {strategy: round_robin}\n":                          {Strategy: selection.RoundRobin},
		"      choose: {strategy: load_balanced}\n":                        {Strategy: selection.LoadBalanced},
		"      choose: {strategy: priority, priorities: {b: 10, c: -1}}\n": {Strategy: selection.Priority, Priorities: map[string]int{"b": 10, "c": -1}},
		"      choose: {strategy: manual, step: c}\n":                      {Strategy: selection.Manual, Names: []string{"c"}},
	} {
		set, err := loadWorkflow(t, chooseWorkflow(declared))
		require.NoError(t, err, declared)
		flow, _ := set.Find("w")
		require.Empty(t, cmp.Diff(want, flow.Steps["a"].Choose), declared)
		require.True(t, flow.Steps["a"].Chooses())
		require.True(t, flow.Chooses())
	}
	for declared, want := range map[string]choice.Policy{
		"":                                      {},
		"      tools: {strategy: capability}\n": {}, // no capability is needed, so all tools are allowed
		"      tools: {needs: [web]}\n":         {Strategy: selection.Capability, Needs: []string{"web"}},
		"      tools: {strategy: manual, names: [look_up]}\n": {Strategy: selection.Manual, Names: []string{"look_up"}},
	} {
		set, err := loadWorkflow(t, toolsWorkflow(declared))
		require.NoError(t, err, declared)
		flow, _ := set.Find("w")
		require.Empty(t, cmp.Diff(want, flow.Steps["a"].Tools), declared)
		require.False(t, flow.Chooses())
	}
}

func TestLoad_ReportsInvalidChoicesAndTools(t *testing.T) {
	for declared, want := range map[string]string{
		chooseWorkflow("      choose: {strategy: prioritty}\n"):                             `w.yaml:9: choose.strategy: unknown strategy "prioritty"; did you mean "priority"?`,
		chooseWorkflow("      choose: {strategy: sticky}\n"):                                `w.yaml:9: choose.strategy: unknown strategy "sticky"; there are capability, round_robin, load_balanced, priority, manual`,
		chooseWorkflow("      choose: {strategy: round_robin, needs: [a]}\n"):               "w.yaml:9: choose.needs: is for strategy capability; this is round_robin",
		chooseWorkflow("      choose: {needs: [Tax]}\n"):                                    `w.yaml:9: choose.needs: "Tax" is no capability; want 1 to 63 of a-z, 0-9, dot and hyphen`,
		chooseWorkflow("      choose: {needs: [tax, tax]}\n"):                               `w.yaml:9: choose.needs: "tax" is named twice`,
		chooseWorkflow("      choose: {strategy: priority}\n"):                              "w.yaml:9: choose: strategy priority wants priorities of routes, such as priorities: {b: 10}",
		chooseWorkflow("      choose: {strategy: priority, priorities: {d: 1, b: 1001}}\n"): "w.yaml:9: choose.priorities.b: 1001 is not between -1000 and 1000\nw.yaml:9: choose.priorities: \"d\" is not among the routes of step a",
		chooseWorkflow("      choose: {strategy: manual}\n"):                                `w.yaml:9: choose: strategy manual wants one of the routes as step; "" is none`,
		chooseWorkflow("      choose: {strategy: manual, step: a}\n"):                       `w.yaml:9: choose: strategy manual wants one of the routes as step; "a" is none`,
		chooseWorkflow("      default: b\n"):                                                "w.yaml:9: step a: default is for an agent that names none of its routes; without an agent the orchestrator chooses",
		chooseWorkflow("      instances: {strategy: sticky}\n"):                             "w.yaml:9: step a: instances is for a step with an agent",
		chooseWorkflow("      tools: {needs: [a]}\n"):                                       "w.yaml:9: step a: tools is for a step with an agent, for only that has tools",
		chooseWorkflow("      onError: {continue: true}\n"):                                 "w.yaml:9: step a: onError is for a step with an agent, for only that can fail",
		chooseWorkflow("      agent: x\n      choose: {needs: [a]}\n"):                      "w.yaml:10: step a: choose is for a step with routes and without an agent; an agent chooses itself",
		toolsWorkflow("      choose: {needs: [a]}\n"):                                       "w.yaml:10: step a: choose is for a step with routes and without an agent; an agent chooses itself",
		toolsWorkflow("      tools: {strategy: round_robin}\n"):                             `w.yaml:10: tools.strategy: unknown strategy "round_robin"; there are capability, manual`,
		toolsWorkflow("      tools: {names: [look_up]}\n"):                                  "w.yaml:10: tools.names: is for strategy manual; this is capability",
		toolsWorkflow("      tools: {needs: [Web]}\n"):                                      `w.yaml:10: tools.needs: "Web" is no capability; want 1 to 63 of a-z, 0-9, dot and hyphen`,
		toolsWorkflow("      tools: {strategy: manual}\n"):                                  "w.yaml:10: tools: strategy manual wants names of 1 to 64 tools, got 0",
		toolsWorkflow("      tools: {strategy: manual, names: [a, a]}\n"):                   `w.yaml:10: tools.names: "a" is empty, or named twice`,
		toolsWorkflow("      tools: {need: [a]}\n"):                                         `w.yaml:10: unknown field "steps.a.tools.need"; did you mean "needs"?`,
		// In these workflows a step chooses by strategy. A strategy alone does not end a cycle, and each of its
		// routes needs an agent.
		"  entry: a\n  steps:\n    a: {routes: [b]}\n    b: {agent: x, next: a}\n":                            "its next steps form an endless cycle: a, b, a; give one of them a limit",
		"  entry: a\n  steps:\n    a: {routes: [b, c]}\n    b: {routes: [c]}\n    c: {agent: x, end: true}\n": "step a: the route b begins with no agent, and agents choose between agents",
	} {
		_, err := loadWorkflow(t, declared)
		require.Error(t, err, declared)
		for line := range strings.SplitSeq(want, "\n") {
			require.Contains(t, err.Error(), line)
		}
	}
}

// Steps of a nested workflow get new names. A step that chooses among them refers to the new names.
func TestLoad_RenamesChoicesOfNestedWorkflows(t *testing.T) {
	inner := func(choose string) string {
		return strings.Replace(manifestHead, "name: w", "name: inner",
			1) + "  entry: a\n  steps:\n    a: {routes: [b, c], choose: " + choose + "}\n    b: {agent: x, end: true}\n    c: {agent: y, end: true}\n"
	}
	outer := manifestHead + "  entry: first\n  steps:\n    first: {workflow: inner, next: last}\n    last: {agent: z, end: true}\n"
	for choose, want := range map[string]choice.Policy{
		"{strategy: manual, step: c}":               {Strategy: selection.Manual, Names: []string{"first/c"}},
		"{strategy: priority, priorities: {b: 10}}": {Strategy: selection.Priority, Priorities: map[string]int{"first/b": 10}},
	} {
		set, err := Load(fstest.MapFS{"w.yaml": {Data: []byte(outer)}, "inner.yaml": {Data: []byte(inner(choose))}}, "w")
		require.NoError(t, err)
		flow, _ := set.Find("w")
		require.Empty(t, cmp.Diff(want, flow.Steps["first/a"].Choose))
	}
	_, err := Load(fstest.MapFS{
		"w.yaml":     {Data: []byte(strings.Replace(outer, "next: last", "next: last, choose: {needs: [a]}, tools: {needs: [a]}", 1))},
		"inner.yaml": {Data: []byte(inner("{}"))},
	}, "w")
	require.ErrorContains(t, err, "step first: is the workflow inner, and cannot have choose")
	require.ErrorContains(t, err, "step first: is the workflow inner, and cannot have tools")
}

var (
	examplePattern = regexp.MustCompile("(?s)\n```yaml\n(\\w+:\n  (?:routes|agent).*?)```\n")
	chosenPattern  = regexp.MustCompile(`(?m)^w\.yaml:[79]: .*$`)
)

// The examples of choices and tools in docs/routing.md can be loaded, and Load returns the errors that the page
// quotes.
func TestRoutingPage_ChoiceAndToolExamplesLoad(t *testing.T) {
	text, err := os.ReadFile(pagePath)
	require.NoError(t, err)
	shown := 0
	for _, found := range examplePattern.FindAllStringSubmatch(string(text), -1) {
		if !strings.Contains(found[1], "choose:") && !strings.Contains(found[1], "tools:") {
			continue
		}
		shown++
		entry, _, _ := strings.Cut(found[1], ":")
		_, err := loadWorkflow(t, "  entry: "+entry+"\n  steps:\n    "+strings.ReplaceAll(strings.TrimSpace(found[1]), "\n", "\n    ")+"\n")
		require.NoError(t, err, found[1])
	}
	require.Equal(t, 2, shown)
	_, err = loadWorkflow(t,
		"  entry: a\n  steps: # both are wrong\n    a: {routes: [b], choose: {strategy: prioritty}}\n    b:\n      tools: {names: [x]}\n      agent: x\n      end: true\n")
	lines := chosenPattern.FindAllString(string(text), -1)
	require.Len(t, lines, 2)
	for _, line := range lines {
		require.Contains(t, err.Error(), line)
	}
}
