package plugin_test

import (
	"context"
	"go/parser"
	"go/token"
	"io/fs"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/troupe-dev/troupe/pkg/agent"
	"github.com/troupe-dev/troupe/pkg/conversation"
	"github.com/troupe-dev/troupe/pkg/event"
	"github.com/troupe-dev/troupe/pkg/execution"
	"github.com/troupe-dev/troupe/pkg/hook"
	"github.com/troupe-dev/troupe/pkg/llm"
	"github.com/troupe-dev/troupe/pkg/llm/scripted"
	"github.com/troupe-dev/troupe/pkg/plugin"
	"github.com/troupe-dev/troupe/pkg/plugin/approval"
	"github.com/troupe-dev/troupe/pkg/plugin/compaction"
	"github.com/troupe-dev/troupe/pkg/plugin/guardrails"
	"github.com/troupe-dev/troupe/pkg/plugin/trust"
	"github.com/troupe-dev/troupe/pkg/tool"
)

// Plugins consist only of handlers, so they import neither the loop nor the agent.
// Req: CO-7
func TestPlugins_UseHandlersOnly(t *testing.T) {
	const module = "github.com/troupe-dev/troupe/"
	may := []string{
		"conversation", "event", "execution", "failure", "manifest", "ownership", "llm", "hook", "trust",
		"plugin/internal/perkey",
	}
	seen := 0
	require.NoError(t, filepath.WalkDir(".", func(file string, _ fs.DirEntry, err error) error {
		if err != nil || !strings.HasSuffix(file, ".go") || strings.HasSuffix(file, "_test.go") {
			return err
		}
		seen++
		src, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.ImportsOnly)
		require.NoError(t, err)
		for _, imported := range src.Imports {
			if local, ok := strings.CutPrefix(strings.Trim(imported.Path.Value, `"`), module+"pkg/"); ok {
				require.Contains(t, may, local, file)
			}
		}
		return nil
	}))
	require.Greater(t, seen, 8)
}

// All plugins of this folder work together in one agent, in the order that docs/plugins.md recommends.
// Req: CO-7, CO-64
func TestPlugins_WorkTogether(t *testing.T) {
	var log strings.Builder
	var all []hook.Plugin
	add := func(p hook.Plugin, err error) {
		require.NoError(t, err)
		all = append(all, p)
	}
	add(trust.New(trust.Config{Gate: trust.GateConfig{Agent: "clerk", Level: trust.Open}}))
	add(guardrails.New(guardrails.Config{Input: []guardrails.Check{guardrails.MaxLength(100)}, Output: []guardrails.Check{guardrails.Forbid("swordfish")}}))
	add(plugin.NewRateLimit(plugin.RateLimit{ModelCalls: plugin.CallLimit{Session: 100}}))
	add(plugin.NewReflection(plugin.Reflection{}))
	add(compaction.New(compaction.Config{AtLeast: 3, Keep: 1}))
	add(plugin.NewContextWatch(plugin.ContextWatch{}))
	add(plugin.NewToolLog(plugin.ToolLog{Writer: &log}))
	add(approval.New(approval.Config{Asker: approval.AskerFunc(func(context.Context, approval.Question) (approval.Answer, error) {
		return approval.Answer{Verdict: approval.Allow}, nil
	})}))

	send, err := tool.Func("send", "Sends.", func(context.Context, struct{}) (string, error) { return "sent", nil })
	require.NoError(t, err)
	full := scripted.Call(conversation.ToolCall{Name: "send"})
	full.Usage.InputTokens = llm.DefaultContextSize * 95 / 100
	model := scripted.New(
		scripted.Say("Send it."), full, scripted.Say("It is sent."), full, scripted.Say("The user wants it sent."), scripted.Say("Sent twice."), scripted.Say("Done."))
	a, err := agent.New(agent.Config{Name: "clerk", Model: model, Tools: []tool.Tool{send}, Plugins: all})
	require.NoError(t, err)
	var happened []string
	step := execution.Step{SessionID: "s", TurnID: "t", History: []conversation.Message{conversation.User("Send it.")}}
	done, err := a.Execute(t.Context(), agent.Invocation{Step: step}, func(e event.Event) error {
		switch p := e.Payload.(type) {
		case event.Warning:
			happened = append(happened, p.Reason)
		case event.Thinking:
			happened = append(happened, string(p.Topic))
		}
		return nil
	})
	require.NoError(t, err)
	require.Equal(t, "Done.", done.Result.Text)
	require.Equal(t, []string{"plan", plugin.ReasonContextFilling, "reflection", compaction.ReasonCompacted, "reflection"}, happened)
	require.Equal(t, 2, strings.Count(log.String(), "tool=send status=success"))
	require.Len(t, model.Requests(), 7)
}
