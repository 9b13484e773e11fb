package plugin_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"github.com/troupe-dev/troupe/pkg/agent"
	"github.com/troupe-dev/troupe/pkg/conversation"
	"github.com/troupe-dev/troupe/pkg/event"
	"github.com/troupe-dev/troupe/pkg/execution"
	"github.com/troupe-dev/troupe/pkg/failure"
	"github.com/troupe-dev/troupe/pkg/hook"
	"github.com/troupe-dev/troupe/pkg/llm/scripted"
	"github.com/troupe-dev/troupe/pkg/plugin"
	"github.com/troupe-dev/troupe/pkg/tool"
)

type echoArguments struct {
	Word string `json:"word"`
}

// runLogged runs a turn in which the model calls tools. The tool echo fails for "no".
func runLogged(ctx context.Context, c plugin.ToolLog, calls ...conversation.ToolCall) (warned []string, err error) {
	log, err := plugin.NewToolLog(c)
	if err != nil {
		return nil, err
	}
	echo, err := tool.Func("echo", "Says it again.", func(_ context.Context, in echoArguments) (string, error) {
		if in.Word == "no" {
			return "", errors.New("no")
		}
		return in.Word, nil
	})
	if err != nil {
		return nil, err
	}
	a, err := agent.New(agent.Config{
		Name: "parrot", Model: scripted.New(scripted.Call(calls...), scripted.Say("done")), Tools: []tool.Tool{echo}, Plugins: []hook.Plugin{log},
	})
	if err != nil {
		return nil, err
	}
	step := execution.Step{SessionID: "s1", TurnID: "t1", History: []conversation.Message{conversation.User("go")}}
	_, err = a.Execute(ctx, agent.Invocation{Step: step}, func(e event.Event) error {
		if w, ok := e.Payload.(event.Warning); ok {
			warned = append(warned, w.Reason)
		}
		return nil
	})
	return warned, err
}

func echoCall(name, word string) conversation.ToolCall {
	return conversation.ToolCall{Name: name, Arguments: `{"word": "` + word + `"}`}
}

// timingFields matches the fields of a line that differ between runs.
var timingFields = regexp.MustCompile(`(?m)^\S+ |duration=\S+`)

// Req: CO-7
func TestToolLog_WritesALineForEachCall(t *testing.T) {
	evil := "rm\n2026-01-01T00:00:00Z tool=echo \x1b[31m\u202e"
	calls := []conversation.ToolCall{echoCall("echo", "hello"), echoCall("echo", "no"), echoCall(evil, "x")}
	head := func(call, tool, status string) string {
		return fmt.Sprintf("agent=parrot session=s1 turn=t1 call=%s tool=%s status=%s ", call, tool, status)
	}
	const name = `"rm\n2026-01-01T00:00:00Z tool=echo \x1b[31m\u202e"`
	for title, tc := range map[string]struct {
		config plugin.ToolLog
		want   []string
	}{
		"only how it went": {want: []string{
			head("call_1", "echo", "success"), head("call_2", "echo", "error"), head("call_3", name, "not_found"),
		}},
		"all of it": {plugin.ToolLog{Arguments: true, Results: true}, []string{
			head("call_1", "echo", "success") + ` arguments="{\"word\": \"hello\"}" result=hello`,
			head("call_2", "echo", "error") + ` arguments="{\"word\": \"no\"}" result="Error: no"`,
			head("call_3", name, "not_found") + ` arguments="{\"word\": \"x\"}" result=`,
		}},
	} {
		t.Run(title, func(t *testing.T) {
			var out strings.Builder
			tc.config.Writer = &out
			warned, err := runLogged(t.Context(), tc.config, calls...)
			require.NoError(t, err)
			require.Empty(t, warned)
			lines := strings.Split(strings.TrimSuffix(timingFields.ReplaceAllString(out.String(), ""), "\n"), "\n")
			require.Len(t, lines, 3, "a model cannot make a line of its own")
			for i, want := range tc.want {
				require.True(t, strings.HasPrefix(lines[i], want), "%s\n%s", want, lines[i])
			}
			if !tc.config.Arguments {
				require.NotContains(t, out.String(), "hello")
			}
		})
	}
}

func TestToolLog_WritesToALogger(t *testing.T) {
	core, logs := observer.New(zap.InfoLevel)
	_, err := runLogged(t.Context(), plugin.ToolLog{Log: zap.New(core)}, echoCall("echo", "hello"), echoCall("a\x07b", "x"))
	require.NoError(t, err)
	require.Equal(t, 2, logs.Len())
	fields := logs.All()[1].ContextMap()
	require.NotEmpty(t, fields["duration"])
	delete(fields, "duration")
	require.Equal(t, map[string]any{
		"agent": "parrot", "session": "s1", "turn": "t1", "call": "call_2", "tool": `a\ab`, "status": "not_found",
	}, fields)
}

func TestToolLog_CutsLongTexts(t *testing.T) {
	var out strings.Builder
	_, err := runLogged(t.Context(), plugin.ToolLog{Writer: &out, Arguments: true, Results: true}, echoCall("echo", strings.Repeat("é", 5000)))
	require.NoError(t, err)
	require.Less(t, out.Len(), 3*plugin.MaxLoggedText)
	require.Contains(t, out.String(), "é…")
}

type failingWriter struct{}

func (failingWriter) Write([]byte) (int, error) { return 0, errors.New("the disk is full") }

func TestToolLog_WarnsWhenALineCannotBeWritten(t *testing.T) {
	warned, err := runLogged(t.Context(), plugin.ToolLog{Writer: failingWriter{}}, echoCall("echo", "hello"))
	require.NoError(t, err)
	require.Equal(t, []string{plugin.ReasonToolLogFailed}, warned)
}

func TestToolLog_RejectsInvalidSettings(t *testing.T) {
	for _, c := range []plugin.ToolLog{{}, {Log: zap.NewNop(), Writer: os.Stderr}} {
		_, err := plugin.NewToolLog(c)
		require.True(t, failure.Is(err, failure.AgentValidation))
		require.ErrorContains(t, err, "Log or Writer")
	}
}

// This plugin writes a line for each tool call to the terminal, with the arguments.
func ExampleNewToolLog() {
	var out strings.Builder
	if _, err := runLogged(context.Background(), plugin.ToolLog{Writer: &out, Arguments: true}, echoCall("echo", "hello")); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return
	}
	fmt.Fprint(os.Stdout, timingFields.ReplaceAllString(out.String(), ""))
	// Output: agent=parrot session=s1 turn=t1 call=call_1 tool=echo status=success  arguments="{\"word\": \"hello\"}"
}
