package spec_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"

	"github.com/troupe-dev/troupe/pkg/agent"
	"github.com/troupe-dev/troupe/pkg/conversation"
	"github.com/troupe-dev/troupe/pkg/event"
	"github.com/troupe-dev/troupe/pkg/execution"
	"github.com/troupe-dev/troupe/pkg/failure"
	"github.com/troupe-dev/troupe/pkg/llm/scripted"
	"github.com/troupe-dev/troupe/services/worker/internal/builtin"
	"github.com/troupe-dev/troupe/services/worker/internal/spec"
)

func TestBuild_CreatesTheDeclaredPlugins(t *testing.T) {
	invites := filepath.Join(t.TempDir(), "invites")
	require.NoError(t, os.WriteFile(invites, []byte("a-code-of-some-length\nanother-code-of-it\n"), 0o600))
	declared := `
  model: scripted/model
  plugins:
    - trust: {level: open, admins: [root], allow: [friend], invitesFile: INVITES, clients: CLIENTS, judge: scripted/model, policy: Be kind., trustActor: true}
    - guardrails: {input: {maxLength: 100, forbid: [swordfish]}, output: {topics: [the weather]}, answer: No.}
    - guardrails: {name: more, input: {topics: [the weather]}}
    - ratelimit: {modelCalls: {agent: 100, session: 10}, toolCalls: {session: 5}, wait: 5s}
    - reflection: {every: 2}
    - compaction: {above: 90, atLeast: 8, keep: 5}
    - contextwatch: {at: [80]}
    - toollog: {arguments: true, results: true}
    - approval: {never: [search_documents]}
  tools: [{builtin: search_documents, with: {path: ./docs}}]
`
	declared = strings.NewReplacer("INVITES", invites, "CLIENTS", filepath.Join(t.TempDir(), "clients.yaml")).Replace(declared)
	model := scripted.New(scripted.Say(`{"allowed": true}`), scripted.Say("Plan."), scripted.Say("It rains."), scripted.Say(`{"allowed": true}`))
	a, err := spec.Build(t.Context(), agentFolder(declared), "", spec.Dependencies{Models: modelProviders(t, model.Provider()), Tools: builtin.Catalog{}})
	require.NoError(t, err)
	step := execution.Step{History: []conversation.Message{conversation.User("Does it rain?")}}
	done, err := a.Execute(t.Context(), agent.Invocation{Step: step}, func(event.Event) error { return nil })
	require.NoError(t, err)
	require.Equal(t, "It rains.", done.Result.Text)
	require.Len(t, model.Requests(), 4)

	step.History[0].Text = "Say swordfish."
	done, err = a.Execute(t.Context(), agent.Invocation{Step: step}, func(event.Event) error { return nil })
	require.NoError(t, err)
	require.Equal(t, "No.", done.Result.Text)
}

// Each plugin without required settings can be declared by its name alone, or with empty settings.
func TestBuild_CreatesPluginsByName(t *testing.T) {
	for _, declared := range []string{
		"[reflection, compaction, contextwatch, toollog, approval, trust]",
		"[{reflection: }, {compaction: {}}, {contextwatch: {}}, {toollog: }, {approval: {}}, {trust: {level: open}}]",
	} {
		_, err := spec.Build(t.Context(), agentFolder("  model: builtin/extractive\n  plugins: "+declared+"\n"), "",
			spec.Dependencies{Models: modelProviders(t), Tools: builtin.Catalog{}})
		require.NoError(t, err)
	}
	a, err := spec.Build(t.Context(), agentFolder("  model: builtin/extractive\n  plugins: [trust]\n"), "",
		spec.Dependencies{Models: modelProviders(t), Tools: builtin.Catalog{}})
	require.NoError(t, err)
	_, err = a.Execute(t.Context(), agent.Invocation{}, func(event.Event) error { return nil })
	require.True(t, failure.Is(err, failure.UserPermission), "%v", err)
}

// Req: CO-9
func TestBuild_ReportsAllInvalidPlugins(t *testing.T) {
	const head = "  model: builtin/extractive\n  plugins:\n"
	for name, tc := range map[string]struct{ plugins, want string }{
		"unknown, near": {"reflecton", `plugins[0]: there is no plugin "reflecton"; did you mean "reflection"?`},
		"unknown": {
			"magic",
			`plugins[0]: there is no plugin "magic"; there are approval, compaction, contextwatch, guardrails, ratelimit, reflection, toollog, trust`,
		},
		"unknown, set": {"{approvl: {never: [x]}}", `plugins[0]: there is no plugin "approvl"; did you mean "approval"?`},
		"two in one": {
			"{reflection: {}, compaction: {}}",
			`plugins[0]: want the name of a plugin, or {name: settings}; there are approval, compaction, contextwatch, guardrails, ratelimit, reflection, toollog, trust`,
		},
		"no name": {
			"[reflection]",
			`plugins[0]: want the name of a plugin, or {name: settings}; there are approval, compaction, contextwatch, guardrails, ratelimit, reflection, toollog, trust`,
		},
		"field":        {"{reflection: {evry: 2}}", `unknown field "evry"; did you mean "every"?`},
		"shape":        {"{compaction: {above: high}}", `above: want a number, got "high"`},
		"reflection":   {"{reflection: {every: -1}}", "plugins[0].reflection.every is -1; use 1 or more rounds"},
		"compaction":   {"{compaction: {above: 120}}", "plugins[0].compaction.above is 120; use a percentage above 0 and up to 100"},
		"atLeast":      {"{compaction: {atLeast: 3}}", "plugins[0].compaction.atLeast is 3; use more than the 5 messages that stay"},
		"contextwatch": {"{contextwatch: {at: [50, 0]}}", "plugins[0].contextwatch.at[1] is 0; use a percentage above 0 and up to 100"},
		"ratelimit":    {"{ratelimit: {modelCalls: {agent: -1}}}", "plugins[0].ratelimit.modelCalls.agent is -1; use calls a minute, or 0 for no limit"},
		"no limit":     {"ratelimit", "plugins[0].ratelimit.modelCalls and ToolCalls are missing; set a limit, or leave the plugin out"},
		"guardrails": {
			"{guardrails: {output: {forbid: ['(']}}}",
			`plugins[0].guardrails.output.forbid[0] is "(", which is no regular expression of Go (RE2), or empty`,
		},
		"no check":       {"guardrails", "plugins[0].guardrails.input and Output are missing; add a check, or leave the plugin out"},
		"approval":       {"{approval: {always: [a], never: [a]}}", `plugins[0].approval.always[0] is "a", which is in Never as well; leave one out`},
		"approval, time": {"{approval: {timeout: -1s}}", `plugins[0].approval.timeout -1s: use a duration of at most 168h0m0s, or 0 for 5m0s`},
		"approval, tool": {
			"{approval: {always: [a]}}",
			`the handler on_agent_ready of plugin approval failed: Always[0]: agent one has no tool "a"; it has none`,
		},
		"trust": {
			"{trust: {level: paranoid}}",
			`plugins[0].trust: the trust of agent "one" is not valid: Level: trust level "paranoid" is not known; use open, careful or strict`,
		},
		"judge": {
			"{trust: {judge: nobody/nothing}}",
			`plugins[0].trust.judge: model "nobody/nothing": no provider has the prefix "nobody"; there are builtin/`,
		},
		"invites": {"{trust: {invitesFile: /nowhere/to/be/found}}", "plugins[0].trust.invitesFile: it cannot be read; want a file with a code a line"},
		"clients": {"{trust: {clients: /nowhere/to/be/found}}", "plugins[0].trust.clients: the agent cannot write its list of clients"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := spec.Build(t.Context(), agentFolder(head+"    - "+tc.plugins+"\n"), "one", spec.Dependencies{
				Models: modelProviders(t),
				Tools:  builtin.Catalog{},
			})
			require.Error(t, err)
			line, message, _ := strings.Cut(err.Error(), ": ")
			require.Empty(t, cmp.Diff(tc.want, message))
			require.Contains(t, []string{"agents.yaml:7", "agents.yaml:1"}, line)
		})
	}
	_, err := spec.Build(t.Context(), agentFolder(head+"    - reflection\n    - magic\n    - {reflection: {every: 2}}\n"), "one",
		spec.Dependencies{Models: modelProviders(t), Tools: builtin.Catalog{}})
	require.ErrorContains(t, err, "agents.yaml:8: plugins[1]: there is no plugin")
	require.ErrorContains(t, err, `agents.yaml:9: plugins[2]: there is a plugin "reflection" before it; leave one out`)
}
