package agent_test

import (
	"context"
	"errors"
	"iter"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"go.uber.org/zap/zaptest/observer"

	"github.com/troupe-dev/troupe/pkg/agent"
	"github.com/troupe-dev/troupe/pkg/event"
	"github.com/troupe-dev/troupe/pkg/failure"
	"github.com/troupe-dev/troupe/pkg/hook"
	"github.com/troupe-dev/troupe/pkg/llm"
	"github.com/troupe-dev/troupe/pkg/llm/scripted"
	"github.com/troupe-dev/troupe/pkg/tool"
)

// specRecordingTool is a tool that records each read of its spec.
type specRecordingTool struct {
	*loggedResource
	buildLog *[]string
}

func (s specRecordingTool) Spec() llm.ToolSpec {
	*s.buildLog = append(*s.buildLog, "tools")
	return s.loggedResource.Spec()
}

// New builds its parts in a fixed order. The test starts with only invalid parts and repairs one after the other.
// Each time New reports the first invalid part and does not touch later parts.
// Req: CO-1, CO-8
func TestNew_BuildsItsPartsInOrderUntilOneFails(t *testing.T) {
	var touched []string
	blocked := filepath.Join(t.TempDir(), "file")
	require.NoError(t, os.WriteFile(blocked, []byte("not a folder"), 0o600))
	noModel := failure.New(failure.PolicySecurity, "test", "OPENAI_API_KEY is missing")
	var opened error = noModel
	models, err := llm.NewCatalog(llm.Provider{Prefix: "test", Open: func(string) (llm.Model, error) {
		touched = append(touched, "model")
		return scripted.New(), opened
	}})
	require.NoError(t, err)
	notReady := errors.New("the port is taken")
	ready := notReady

	c := agent.Config{
		Name: "a", InstructionsFrom: filepath.Join(t.TempDir(), "missing.md"),
		SessionLog: &agent.SessionLog{Folder: filepath.Join(blocked, "evals")},
		Handlers:   []hook.Handler{{}},
		Tools:      []tool.Tool{specRecordingTool{&loggedResource{name: "no name"}, &touched}},
		Models:     models, ModelName: "test/small",
	}
	fails := func(mode failure.Mode, text string) error {
		t.Helper()
		touched = nil
		a, err := agent.New(c)
		require.Nil(t, a)
		require.True(t, failure.Is(err, mode), "%v", err)
		require.ErrorContains(t, err, text)
		return err
	}

	require.ErrorIs(t, fails(failure.AgentValidation, "there is no such file or folder"), os.ErrNotExist)
	c.InstructionsFrom = ""
	_ = fails(failure.SystemDisk, "evals")
	c.SessionLog = nil
	_ = fails(failure.AgentValidation, "handler 1 belongs to no event")
	require.Empty(t, touched)
	c.Handlers = []hook.Handler{hook.OnAgentReady(func(a hook.Agent) error {
		touched = append(touched, "ready "+a.Model+" "+strings.Join(a.Tools, ","))
		return ready
	})}
	_ = fails(failure.AgentValidation, `tool name "no name"`)
	require.Equal(t, []string{"tools"}, touched)
	c.Tools = []tool.Tool{lookup(t)}
	require.ErrorIs(t, fails(failure.PolicySecurity, "OPENAI_API_KEY"), noModel)
	require.Equal(t, []string{"model"}, touched)
	opened = nil
	require.ErrorIs(t, fails(failure.AgentLogic, "on_agent_ready"), notReady)
	require.Equal(t, []string{"model", "ready scripted/model lookup"}, touched)
	ready = nil

	touched = nil
	a, err := agent.New(c)
	require.NoError(t, err)
	require.Equal(t, []string{"model", "ready scripted/model lookup"}, touched, "once, at the end")
	_, _, err = execute(t.Context(), a, questionStep("hi"), discardEvents)
	require.Error(t, err, "the script is empty")
	require.Len(t, touched, 2)
}

// buildPrompt builds an agent and returns its system prompt and the warnings that it logged.
func buildPrompt(t *testing.T, c agent.Config) (prompt string, warnings []string, err error) {
	t.Helper()
	core, log := observer.New(zapcore.WarnLevel)
	model := scripted.New(scripted.Say("hi"))
	c.Name, c.Model, c.Log = "a", model, zap.New(core)
	a, err := agent.New(c)
	if err != nil {
		require.Nil(t, a)
		return "", nil, err
	}
	_, _, err = execute(t.Context(), a, questionStep("hi"), discardEvents)
	require.NoError(t, err)
	for _, e := range log.All() {
		warnings = append(warnings, e.Message)
	}
	return model.Requests()[0].System, warnings, nil
}

func writeFile(t *testing.T, path, text string) string {
	t.Helper()
	require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o750))
	require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
	return path
}

// Req: CO-2, CO-3
func TestNew_ReadsInstructionsFromTextFileOrFolder(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "all [my] prompts")
	file := writeFile(t, filepath.Join(dir, "10-who.md"), "\nYou are a clerk.\n")
	bare := writeFile(t, filepath.Join(dir, "a prompt"), "You are bare.")
	writeFile(t, filepath.Join(dir, "20-how.txt"), "Be brief.")
	writeFile(t, filepath.Join(dir, "30-empty.md"), " \n")
	writeFile(t, filepath.Join(dir, "notes.json"), "{}")
	writeFile(t, filepath.Join(dir, "more.md", "deep.md"), "Not read.")
	missing := filepath.Join(dir, "missing.md")

	for name, tc := range map[string]struct {
		config agent.Config
		want   string
		warns  string
	}{
		"none":                       {agent.Config{}, agent.DefaultInstructions, ""},
		"text":                       {agent.Config{Instructions: "You are a poet."}, "You are a poet.", ""},
		"lines":                      {agent.Config{Instructions: "Do not read\n" + file}, "Do not read\n" + file, ""},
		"one word":                   {agent.Config{Instructions: "Answer."}, "Answer.", ""},
		"very long":                  {agent.Config{Instructions: strings.Repeat("a", 1<<20)}, strings.Repeat("a", 1<<20), ""},
		"path of a file":             {agent.Config{Instructions: file}, "You are a clerk.", ""},
		"path without an ending":     {agent.Config{Instructions: bare}, "You are bare.", ""},
		"missing, but like a path":   {agent.Config{Instructions: "prompts/clerk.md"}, "prompts/clerk.md", "no such file"},
		"missing, without an ending": {agent.Config{Instructions: "prompts/clerk"}, "prompts/clerk", "no such file"},
		"path of a folder":           {agent.Config{Instructions: filepath.Dir(filepath.Dir(dir))}, filepath.Dir(filepath.Dir(dir)), "InstructionsFrom"},
		"file":                       {agent.Config{InstructionsFrom: file}, "You are a clerk.", ""},
		"folder":                     {agent.Config{InstructionsFrom: dir}, "You are a clerk.\n\nBe brief.", ""},
	} {
		t.Run(name, func(t *testing.T) {
			prompt, warnings, err := buildPrompt(t, tc.config)
			require.NoError(t, err)
			require.Equal(t, tc.want, prompt)
			if tc.warns == "" {
				require.Empty(t, warnings)
				return
			}
			require.Len(t, warnings, 1)
			require.Contains(t, warnings[0], tc.warns)
		})
	}

	empty := writeFile(t, filepath.Join(t.TempDir(), "empty.md"), "  \n")
	latin := writeFile(t, filepath.Join(t.TempDir(), "latin.md"), "sch\xf6n")
	for name, tc := range map[string]struct {
		config agent.Config
		want   string
	}{
		"missing file":          {agent.Config{InstructionsFrom: missing}, "missing.md: there is no such file or folder"},
		"empty file":            {agent.Config{InstructionsFrom: empty}, "empty.md is empty"},
		"file not UTF-8":        {agent.Config{InstructionsFrom: latin}, "latin.md is not UTF-8"},
		"empty folder":          {agent.Config{InstructionsFrom: t.TempDir()}, "is empty"},
		"folder not UTF-8":      {agent.Config{InstructionsFrom: filepath.Dir(latin)}, "latin.md is not UTF-8"},
		"plain path, empty":     {agent.Config{Instructions: empty}, "empty.md is empty"},
		"plain path, not UTF-8": {agent.Config{Instructions: latin}, "latin.md is not UTF-8"},
		"both":                  {agent.Config{Instructions: "a", InstructionsFrom: file}, "leave one out"},
	} {
		t.Run(name, func(t *testing.T) {
			_, _, err := buildPrompt(t, tc.config)
			require.True(t, failure.Is(err, failure.AgentValidation), "%v", err)
			require.ErrorContains(t, err, tc.want)
		})
	}
}

// Req: CO-4, AD-13
func TestNew_RunsThePluginsHandlersBeforeItsOwn(t *testing.T) {
	var order []string
	note := func(name string) hook.Handler {
		return hook.BeforeIteration(func(context.Context, *hook.Turn) error { order = append(order, name); return nil })
	}
	a := build(t, agent.Config{
		Model:    scripted.New(scripted.Say("hi")),
		Handlers: []hook.Handler{note("own 1"), note("own 2")},
		Plugins: []hook.Plugin{
			{Name: "one", Handlers: []hook.Handler{note("one 1"), note("one 2")}},
			{Name: "two", Handlers: []hook.Handler{note("two")}},
		},
	})
	_, _, err := execute(t.Context(), a, questionStep("hi"), discardEvents)
	require.NoError(t, err)
	require.Equal(t, []string{"one 1", "one 2", "two", "own 1", "own 2"}, order)
}

// Req: CO-5, AD-27
func TestNew_RejectsInvalidHandlersAndPlugins(t *testing.T) {
	fine := hook.AfterTools(func(context.Context, *hook.Round) error { return nil })
	for want, c := range map[string]agent.Config{
		"handlers: handler 2 belongs to no event":             {Handlers: []hook.Handler{fine, {}}},
		"handlers: handler 1, of before_llm, has no function": {Handlers: []hook.Handler{hook.BeforeLLM(nil)}},
		"plugin p: handler 1, of on_error, has no function":   {Plugins: []hook.Plugin{{Name: "p", Handlers: []hook.Handler{hook.OnError(nil)}}}},
		"plugins: number 1 has no name":                       {Plugins: []hook.Plugin{{Handlers: []hook.Handler{fine}}}},
		`plugins: two are named "p"`:                          {Plugins: []hook.Plugin{{Name: "p"}, {Name: "p"}}},
	} {
		c.Name, c.Model = "a", scripted.New()
		_, err := agent.New(c)
		require.True(t, failure.Is(err, failure.AgentValidation), "%v", err)
		require.ErrorContains(t, err, want)
	}
}

// Req: CO-6
func TestAgent_InvocationOverridesMaxIterations(t *testing.T) {
	for name, tc := range map[string]struct {
		configured, invoked, want int
	}{
		"default":    {0, 0, 10},
		"configured": {3, 0, 3},
		"fewer":      {3, 1, 1},
		"more":       {3, 5, 5},
	} {
		t.Run(name, func(t *testing.T) {
			var replies []scripted.Reply
			for range 12 {
				replies = append(replies, lookupReply("a"))
			}
			model := scripted.New(replies...)
			a := build(t, agent.Config{Model: model, Tools: []tool.Tool{lookup(t)}, MaxIterations: tc.configured})
			done, err := a.Execute(t.Context(), agent.Invocation{Step: questionStep("hi"), MaxIterations: tc.invoked}, discardEvents)
			require.NoError(t, err)
			require.Len(t, model.Requests(), tc.want)
			require.Equal(t, event.MaxIterations, done.Reason)
		})
	}
}

// Req: AD-1
func TestNew_AcceptsAFunctionInsteadOfAModel(t *testing.T) {
	var order []string
	sub := build(t, agent.Config{Name: "sub", Model: scripted.New(scripted.Say("from the sub-agent"))})
	a := build(t, agent.Config{
		Name: "root", Description: "Runs another.", Agents: []*agent.Agent{sub},
		Run: func(ctx context.Context, inv agent.Invocation) iter.Seq2[event.Event, error] {
			order = append(order, "run")
			return sub.Run(ctx, inv)
		},
		Handlers: []hook.Handler{
			hook.BeforeAgent(func(context.Context, *hook.Turn) (string, error) { order = append(order, "before"); return "", nil }),
			hook.AfterAgent(func(context.Context, *hook.Turn) (string, error) { order = append(order, "after"); return "", nil }),
		},
	})
	result, _, err := execute(t.Context(), a, questionStep("hi"), discardEvents)
	require.NoError(t, err)
	require.Equal(t, "Runs another.", a.Description())
	require.Equal(t, "from the sub-agent", result.Text)
	require.Equal(t, []string{"before", "run", "after"}, order)
}

// Req: AD-2
func TestNew_RejectsARepeatedNameInTheTree(t *testing.T) {
	idle := func(context.Context, agent.Invocation) iter.Seq2[event.Event, error] {
		return func(func(event.Event, error) bool) {}
	}
	leaf := build(t, agent.Config{Name: "leaf", Model: scripted.New()})
	branch := build(t, agent.Config{Name: "branch", Run: idle, Agents: []*agent.Agent{leaf}})
	for want, c := range map[string]agent.Config{
		`Name ""`:                        {Run: idle},
		"cannot be called user":          {Name: "user", Run: idle},
		`two are named "leaf"`:           {Name: "a", Run: idle, Agents: []*agent.Agent{leaf, leaf}},
		`Agents: two are named "leaf"`:   {Name: "a", Run: idle, Agents: []*agent.Agent{branch, leaf}},
		`Agents: two are named "branch"`: {Name: "branch", Run: idle, Agents: []*agent.Agent{branch}},
		"Agents: number 2 is nil":        {Name: "a", Run: idle, Agents: []*agent.Agent{leaf, nil}},
		"only Run can run them":          {Name: "a", Model: scripted.New(), Agents: []*agent.Agent{leaf}},
		`OutputKey "trace_id"`:           {Name: "a", Run: idle, OutputKey: "trace_id"},
		`OutputKey "_mine"`:              {Name: "a", Run: idle, OutputKey: "_mine"},
		"tool 1 is nil":                  {Name: "a", Run: idle, Tools: []tool.Tool{nil}},
		"Run: an agent with a function":  {Name: "a", Run: idle, Model: scripted.New()},
	} {
		_, err := agent.New(c)
		require.True(t, failure.Is(err, failure.AgentValidation), "%v", err)
		require.ErrorContains(t, err, want)
	}
}
