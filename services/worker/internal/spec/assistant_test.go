package spec_test

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/stretchr/testify/require"

	researchassistant "github.com/troupe-dev/troupe/agents/research-assistant"
	"github.com/troupe-dev/troupe/internal/manifest"
	"github.com/troupe-dev/troupe/pkg/agent"
	"github.com/troupe-dev/troupe/pkg/conversation"
	"github.com/troupe-dev/troupe/pkg/event"
	"github.com/troupe-dev/troupe/pkg/execution"
	"github.com/troupe-dev/troupe/pkg/llm/extractive"
	"github.com/troupe-dev/troupe/pkg/llm/scripted"
	"github.com/troupe-dev/troupe/services/worker/internal/builtin"
	"github.com/troupe-dev/troupe/services/worker/internal/spec"
)

// writeDocs writes a small corpus for the assistant and returns its folder.
func writeDocs(t *testing.T) string {
	t.Helper()
	folder := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(folder, "state.md"), []byte(
		"# State\n\nAn agent may write its own state. It asks the memory service for the rest.\n\nBread is baked.\n"), 0o600))
	return folder
}

// A copy of an agent may have other tools, so no prompt names one.
func TestAssistant_PromptsNameNoTool(t *testing.T) {
	prompts, err := fs.Glob(researchassistant.FS, "prompts/*.md")
	require.NoError(t, err)
	require.NotEmpty(t, prompts)
	for _, name := range prompts {
		prompt, err := fs.ReadFile(researchassistant.FS, name)
		require.NoError(t, err)
		for _, tool := range (builtin.Catalog{}).Names() {
			require.NotContains(t, string(prompt), tool, name)
		}
	}
}

// scriptedFolder returns the folder of the assistant, with every model replaced by a scripted one.
func scriptedFolder(t *testing.T) fs.FS {
	t.Helper()
	fsys := fstest.MapFS{}
	require.NoError(t, fs.WalkDir(researchassistant.FS, ".", func(name string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		text, err := fs.ReadFile(researchassistant.FS, name)
		text = []byte(strings.ReplaceAll(string(text), "model: "+extractive.Name, "model: "+scripted.Name))
		fsys[name] = &fstest.MapFile{Data: text}
		return err
	}))
	return fsys
}

// assistant runs agents of the research assistant one step after the other, as a mesh does.
type assistant struct {
	t      *testing.T
	folder fs.FS
	model  *scripted.Model
	docs   string
	step   execution.Step
}

func newAssistant(t *testing.T, folder fs.FS, said ...string) *assistant {
	a := &assistant{t: t, folder: folder, docs: writeDocs(t)}
	for i, text := range said {
		if i%2 == 0 {
			a.step.History = append(a.step.History, conversation.User(text))
		} else {
			a.step.History = append(a.step.History, conversation.Assistant("clarification", text))
		}
	}
	return a
}

func (a *assistant) run(name string, routes ...string) (execution.Result, []conversation.Message) {
	a.t.Helper()
	if a.model == nil {
		a.model = scripted.New()
	}
	built, err := spec.Build(a.t.Context(), a.folder, name, spec.Dependencies{
		Models: modelProviders(a.t, a.model.Provider()),
		Tools:  builtin.Catalog{Docs: a.docs},
	})
	require.NoError(a.t, err)
	require.NoError(a.t, built.Start(a.t.Context()))
	defer func() { require.NoError(a.t, built.Close()) }()

	a.step.Number++
	a.step.Routes = routes
	done, err := built.Execute(a.t.Context(), agent.Invocation{Step: a.step}, func(event.Event) error { return nil })
	result, messages := done.Result, done.Messages
	require.NoError(a.t, err)
	a.step.Prior = append(a.step.Prior, result)
	return result, messages
}

func TestAssistant_DeclaresFourAgentsAndAWorkflow(t *testing.T) {
	names, err := spec.Names(researchassistant.FS)
	require.NoError(t, err)
	require.Equal(t, []string{"coordinator", "clarification", "research", "synthesis"}, names)
	all, err := manifest.Load(researchassistant.FS)
	require.NoError(t, err)
	require.Len(t, manifest.Select(all, manifest.KindWorkflow), 1)

	for _, name := range names {
		built, err := spec.Build(t.Context(), researchassistant.FS, name, spec.Dependencies{Models: modelProviders(t), Tools: builtin.Catalog{}})
		require.NoError(t, err)
		require.Equal(t, agent.DefaultCapacity, built.Capacity())
		require.NotEmpty(t, built.Description())
	}
}

// Req: RA-4, RA-15, RA-16, RA-19, RA-20
func TestAssistant_AnswersFromDocuments(t *testing.T) {
	a := newAssistant(t, researchassistant.FS, "What may an agent write?")
	routing, messages := a.run("coordinator", "clarification", "research")
	require.Equal(t, "research", routing.NextAgent)
	require.Empty(t, messages)

	research, messages := a.run("research")
	require.Len(t, messages, 1)
	require.Equal(t, conversation.RoleAssistant, messages[0].Role)
	require.Empty(t, messages[0].ToolCalls)
	require.Equal(t, []string{builtin.SearchDocuments}, research.ToolsCalled)
	require.Len(t, research.Observations, 1)
	require.True(t, strings.HasPrefix(research.Observations[0], "Used tool: search_documents\n"))
	require.Equal(t, 2, research.Iterations)

	synthesis, messages := a.run("synthesis")
	require.Len(t, messages, 1)
	require.Contains(t, synthesis.Text, "“An agent may write its own state.”")
	require.Contains(t, synthesis.Text, "Sources:\n"+filepath.ToSlash(a.docs)+"/state.md:3\n")
	require.NotContains(t, synthesis.Text, "Bread")
	require.InDelta(t, 0.6, *synthesis.Confidence, 0)
}

// The assistant gives exactly the answer of make demo that README.md quotes.
func TestAssistant_AnswersTheQuestionOfTheDemo(t *testing.T) {
	root := filepath.Join("..", "..", "..", "..")
	a := newAssistant(t, researchassistant.FS, "What may an agent write?")
	a.docs = filepath.Join(root, "docs")
	a.run("research")
	synthesis, _ := a.run("synthesis")
	const first = "- “An agent may write its own AGENT state and nothing else.” ("
	_, quotes, _ := strings.Cut(synthesis.Text, "\n\n")
	require.True(t, strings.HasPrefix(quotes, first), synthesis.Text)
	for name, contains := range map[string]string{"README.md": first, "Makefile": "ASK ?= " + a.step.History[0].Text} {
		text, err := os.ReadFile(filepath.Join(root, name))
		require.NoError(t, err)
		require.Contains(t, string(text), contains)
	}
	readme, err := os.ReadFile(filepath.Join(root, "README.md"))
	require.NoError(t, err)
	shown := strings.ReplaceAll(string(readme), "\n  │   ", " ") // README wraps long lines
	for line := range strings.SplitSeq(quotes, "\n") {
		if strings.HasPrefix(line, "- “An agent") { // README omits the other quotes
			quote := strings.Replace(line, "("+filepath.ToSlash(a.docs), "(docs", 1)
			require.Contains(t, shown, quote, "README.md quotes another line")
		}
	}
}

// Req: RA-13
func TestAssistant_AsksBackWhenTheQuestionIsVague(t *testing.T) {
	a := newAssistant(t, researchassistant.FS, "Tell me about it")
	routing, _ := a.run("coordinator", "clarification", "research")
	require.Equal(t, "clarification", routing.NextAgent)
	question, messages := a.run("clarification")
	require.True(t, question.InputRequired)
	require.Contains(t, question.Text, "Tell me about it")
	require.Equal(t, []conversation.Message{conversation.Assistant("clarification", question.Text)}, messages)
}

func TestAssistant_UnderstandsTheReplyToItsQuestion(t *testing.T) {
	a := newAssistant(t, researchassistant.FS, "Tell me about it", "What exactly would you like to know?", "what an agent writes")
	a.run("research")
	synthesis, _ := a.run("synthesis")
	require.Contains(t, synthesis.Text, "An agent may write its own state.")
}

// Req: RA-20
func TestAssistant_IsNotConfidentWhenNothingWasFound(t *testing.T) {
	a := newAssistant(t, researchassistant.FS, "What is the capital of France?")
	research, _ := a.run("research")
	require.Empty(t, research.Observations)
	synthesis, _ := a.run("synthesis")
	require.Contains(t, synthesis.Text, "found nothing")
	require.InDelta(t, 0.0, *synthesis.Confidence, 0)
}

// Req: RA-18, RA-20
func TestAssistant_AnswersEvenWhenItsModelsFail(t *testing.T) {
	a := newAssistant(t, scriptedFolder(t), "What may an agent write?")
	a.model = scripted.New(scripted.Fail(errors.New("down")), scripted.Fail(errors.New("down")))
	research, messages := a.run("research")
	require.Equal(t, []string{"Research failed: its model did not answer"}, research.Observations)
	require.Contains(t, research.Text, "Research failed")
	require.Len(t, messages, 1)

	synthesis, messages := a.run("synthesis")
	require.Equal(t, research.Text, synthesis.Text)
	require.InDelta(t, 0.0, *synthesis.Confidence, 0)
	require.Len(t, messages, 1)
}

// The research agent stops after 10 iterations, even if its model keeps calling tools.
// Req: RA-25
func TestAssistant_ResearchEndsAfterTenIterations(t *testing.T) {
	a := newAssistant(t, scriptedFolder(t), "What may an agent write?")
	var replies []scripted.Reply
	for n := range 20 {
		replies = append(replies, scripted.Call(conversation.ToolCall{Name: builtin.SearchDocuments, Arguments: fmt.Sprintf(`{"query": "agent %d"}`, n)}))
	}
	a.model = scripted.New(replies...)
	research, _ := a.run("research")
	require.Len(t, a.model.Requests(), 10)
	require.Equal(t, 10, research.Iterations)
	require.Equal(t, "max_iterations", research.Incomplete)
}

// Req: RA-25
func TestAssistant_AsksItsModelsWithTheirTemperatures(t *testing.T) {
	a := newAssistant(t, scriptedFolder(t), "What may an agent write?")
	var asked []float64
	for _, name := range []string{"coordinator", "clarification", "research", "synthesis"} {
		a.model = scripted.New(scripted.Say("It is so."))
		a.run(name)
		require.Len(t, a.model.Requests(), 1, name)
		require.NotNil(t, a.model.Requests()[0].Temperature, name)
		asked = append(asked, *a.model.Requests()[0].Temperature)
	}
	require.Equal(t, []float64{0.3, 0.5, 0.7, 0.7}, asked)
}

// Req: RA-20
func TestAssistant_SynthesisGetsTheWindowAndTheObservations(t *testing.T) {
	a := newAssistant(t, scriptedFolder(t), "What may an agent write?")
	a.model = scripted.New(
		scripted.Call(
			conversation.ToolCall{Name: builtin.SearchDocuments, Arguments: `{"query": "agent write"}`},
			conversation.ToolCall{Name: builtin.SearchDocuments, Arguments: `{"query": "bread"}`},
		),
		scripted.Say("Its own state."),
		scripted.Say("An agent may write its own state."),
	)
	research, _ := a.run("research")
	synthesis, _ := a.run("synthesis")
	require.InDelta(t, 0.8, *synthesis.Confidence, 0)

	asked := a.model.Requests()[2]
	require.Contains(t, asked.System, "You write the answer")
	require.Equal(t, a.step.History, asked.Messages[:len(asked.Messages)-1])
	briefing := asked.Messages[len(asked.Messages)-1]
	require.Equal(t, "research", briefing.Author)
	require.Contains(t, briefing.Text, strings.Join(research.Observations, "\n\n"))
	require.Contains(t, briefing.Text, "Its own state.")
}
