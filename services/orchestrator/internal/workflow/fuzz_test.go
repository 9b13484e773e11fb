package workflow

import (
	"testing"
	"testing/fstest"

	"github.com/stretchr/testify/require"

	researchassistant "github.com/troupe-dev/troupe/agents/research-assistant"
)

// For every input, Load returns an error or a set in which each workflow is found by its name.
func FuzzLoad(f *testing.F) {
	const head = "apiVersion: troupe.dev/v1\nkind: Workflow\nmetadata: {name: flow}\nspec: "
	own, err := researchassistant.FS.ReadFile("workflow.yaml")
	require.NoError(f, err)
	f.Add(string(own))
	for _, spec := range []string{
		"{entry: one, steps: {one: {agent: one, end: true}}}",
		"{entry: one, steps: {one: {agent: one, next: two}, two: {agent: two, next: one}}}",
		"{entry: one, steps: {one: {workflow: flow, end: true}}}",
		"{entry: one, timeout: -1s, steps: {one: {agent: one, routes: [one], default: two}}}",
		"{entry: one, steps: {one: {agent: one, rules: [{when: {replyTo: one, unansweredMessages: 99999999999}, next: one}]}}}",
		"{entry: one, steps: {one: {agent: one, retry: {limit: 9, pause: 1e99s}, end: true}}}",
	} {
		f.Add(head + spec + "\n")
	}
	f.Fuzz(func(t *testing.T, text string) {
		set, err := Load(fstest.MapFS{"a.yaml": {Data: []byte(text)}}, "")
		if err != nil {
			require.NotEmpty(t, err.Error())
			return
		}
		for _, flow := range set.All() {
			found, ok := set.Find(flow.Name)
			require.True(t, ok)
			require.Equal(t, flow, found)
		}
	})
}
