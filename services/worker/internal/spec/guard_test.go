package spec_test

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/troupe-dev/troupe/pkg/agent"
	"github.com/troupe-dev/troupe/pkg/conversation"
	"github.com/troupe-dev/troupe/pkg/event"
	"github.com/troupe-dev/troupe/pkg/execution"
	"github.com/troupe-dev/troupe/pkg/failure"
	"github.com/troupe-dev/troupe/pkg/llm"
	"github.com/troupe-dev/troupe/pkg/llm/scripted"
	"github.com/troupe-dev/troupe/services/worker/internal/builtin"
	"github.com/troupe-dev/troupe/services/worker/internal/spec"
)

// The declared guard and the declared scopes of tools have the same effect as in Go.
func TestBuild_AppliesTheDeclaredToolGuard(t *testing.T) {
	asks := func(text string) map[string]string {
		t.Helper()
		call := func(name, args string) scripted.Reply {
			return scripted.Call(conversation.ToolCall{Name: name, Arguments: args})
		}
		model := scripted.New(call("search_documents", `{"query": "a"}`), call("current_time", "{}"), scripted.Say("hi"))
		a, err := spec.Build(t.Context(), agentFolder("  model: test/up\n  "+text), "",
			spec.Dependencies{Models: modelProviders(t, modelCatalog(map[string]llm.Model{"up": model})), Tools: builtin.Catalog{}})
		require.NoError(t, err)
		require.NoError(t, a.Start(t.Context()))
		t.Cleanup(func() { require.NoError(t, a.Close()) })
		ended := map[string]string{}
		_, err = a.Execute(t.Context(), agent.Invocation{Step: execution.Step{History: []conversation.Message{conversation.User("hello")}}},
			func(e event.Event) error {
				if done, ok := e.Payload.(event.ToolFinished); ok {
					ended[done.Tool] = done.ErrorType
				}
				return nil
			})
		require.NoError(t, err)
		return ended
	}
	docs := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(docs, "a.md"),
		[]byte("# A\n\nThe library opens at nine and closes at five, also on Sundays and holidays."), 0o600))
	tools := func(search, clock string) string {
		return fmt.Sprintf("tools:\n    - {builtin: search_documents, with: {path: %q}%s}\n    - {builtin: current_time%s}\n", docs, search, clock)
	}
	blocked, free := string(failure.PolicySecurity), ""
	for text, want := range map[string]string{
		tools("", ""):                                                          free,
		tools(", untrusted: true", ""):                                         free,
		tools(", untrusted: true", ", egress: true"):                           blocked,
		tools("", ", egress: true"):                                            free,
		"guard: off\n  " + tools(", untrusted: true", ", egress: true"):        free,
		"guard: strict\n  " + tools(", untrusted: true", ", egress: true"):     blocked,
		"guard: strict\n  " + tools("", ""):                                    free,
		"guard: ask\n  " + tools(", untrusted: true", ", untrusted: true"):     free,
		"guard: strict\n  " + tools(", untrusted: true", ", untrusted: false"): free,
	} {
		require.Equal(t, map[string]string{"search_documents": "", "current_time": want}, asks(text), text)
	}
	_, err := spec.Build(t.Context(), agentFolder("  model: builtin/extractive\n  guard: on\n"), "", spec.Dependencies{
		Models: modelProviders(t),
		Tools:  builtin.Catalog{},
	})
	require.EqualError(t, err, `agents.yaml:6: guard is "on"; use ask, strict or off`)
}
