package toollog_test

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
	"github.com/troupe-dev/troupe/pkg/plugin/toollog"
	"github.com/troupe-dev/troupe/pkg/tool"
)

type word struct {
	Word string `json:"word"`
}

// work is a turn in which the model asks for tools; the tool echo fails at "no".
func work(ctx context.Context, c toollog.Config, calls ...conversation.ToolCall) (warned []string, err error) {
	plugin, err := toollog.New(c)
	if err != nil {
		return nil, err
	}
	echo, err := tool.Func("echo", "Says it again.", func(_ context.Context, in word) (string, error) {
		if in.Word == "no" {
			return "", errors.New("no")
		}
		return in.Word, nil
	})
	if err != nil {
		return nil, err
	}
	a, err := agent.New(agent.Config{
		Name: "parrot", Model: scripted.New(scripted.Call(calls...), scripted.Say("done")), Tools: []tool.Tool{echo}, Plugins: []hook.Plugin{plugin},
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

func say(name, word string) conversation.ToolCall {
	return conversation.ToolCall{Name: name, Arguments: `{"word": "` + word + `"}`}
}

// timing is what differs between runs.
var timing = regexp.MustCompile(`(?m)^\S+ |duration=\S+`)

// Req: CO-7
func TestToolLog_WritesALineForEachCall(t *testing.T) {
	evil := "rm\n2026-01-01T00:00:00Z tool=echo \x1b[31m\u202e"
	calls := []conversation.ToolCall{say("echo", "hello"), say("echo", "no"), say(evil, "x")}
	head := func(call, tool, status string) string {
		return fmt.Sprintf("agent=parrot session=s1 turn=t1 call=%s tool=%s status=%s ", call, tool, status)
	}
	const name = `"rm\n2026-01-01T00:00:00Z tool=echo \x1b[31m\u202e"`
	for title, tc := range map[string]struct {
		config toollog.Config
		want   []string
	}{
		"only how it went": {want: []string{
			head("call_1", "echo", "success"), head("call_2", "echo", "error"), head("call_3", name, "not_found"),
		}},
		"all of it": {toollog.Config{Arguments: true, Results: true}, []string{
			head("call_1", "echo", "success") + ` arguments="{\"word\": \"hello\"}" result=hello`,
			head("call_2", "echo", "error") + ` arguments="{\"word\": \"no\"}" result="Error: no"`,
			head("call_3", name, "not_found") + ` arguments="{\"word\": \"x\"}" result=`,
		}},
	} {
		t.Run(title, func(t *testing.T) {
			var out strings.Builder
			tc.config.Writer = &out
			warned, err := work(t.Context(), tc.config, calls...)
			require.NoError(t, err)
			require.Empty(t, warned)
			lines := strings.Split(strings.TrimSuffix(timing.ReplaceAllString(out.String(), ""), "\n"), "\n")
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
	_, err := work(t.Context(), toollog.Config{Log: zap.New(core)}, say("echo", "hello"), say("a\x07b", "x"))
	require.NoError(t, err)
	require.Equal(t, 2, logs.Len())
	fields := logs.All()[1].ContextMap()
	require.NotEmpty(t, fields["duration"])
	delete(fields, "duration")
	require.Equal(t, map[string]any{
		"agent": "parrot", "session": "s1", "turn": "t1", "call": "call_2", "tool": `a\ab`, "status": "not_found",
	}, fields)
}

func TestToolLog_CutsWhatIsLong(t *testing.T) {
	var out strings.Builder
	_, err := work(t.Context(), toollog.Config{Writer: &out, Arguments: true, Results: true}, say("echo", strings.Repeat("é", 5000)))
	require.NoError(t, err)
	require.Less(t, out.Len(), 3*toollog.MaxText)
	require.Contains(t, out.String(), "é…")
}

type full struct{}

func (full) Write([]byte) (int, error) { return 0, errors.New("the disk is full") }

func TestToolLog_IsNoReasonToFail(t *testing.T) {
	warned, err := work(t.Context(), toollog.Config{Writer: full{}}, say("echo", "hello"))
	require.NoError(t, err)
	require.Equal(t, []string{toollog.ReasonFailed}, warned)
}

func TestNew_NamesWhatIsWrong(t *testing.T) {
	for _, c := range []toollog.Config{{}, {Log: zap.NewNop(), Writer: os.Stderr}} {
		_, err := toollog.New(c)
		require.True(t, failure.Is(err, failure.AgentValidation))
		require.ErrorContains(t, err, "Log or Writer")
	}
}

// Lines on the terminal, with arguments.
func Example() {
	var out strings.Builder
	if _, err := work(context.Background(), toollog.Config{Writer: &out, Arguments: true}, say("echo", "hello")); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return
	}
	fmt.Fprint(os.Stdout, timing.ReplaceAllString(out.String(), ""))
	// Output: agent=parrot session=s1 turn=t1 call=call_1 tool=echo status=success  arguments="{\"word\": \"hello\"}"
}
