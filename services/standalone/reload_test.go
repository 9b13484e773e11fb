package standalone_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"github.com/troupe-dev/troupe/internal/telemetry"
	"github.com/troupe-dev/troupe/pkg/failure"
	troupev1 "github.com/troupe-dev/troupe/pkg/gen/troupe/v1"
	"github.com/troupe-dev/troupe/services/standalone"
)

// serveEchoModel serves an HTTP model that answers with its system prompt. Requests whose prompt contains "slow"
// are delayed until release is closed.
func serveEchoModel(t *testing.T) (asked <-chan struct{}, release chan<- struct{}) {
	t.Helper()
	held, free := make(chan struct{}, 1), make(chan struct{})
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var request struct {
			Messages []struct{ Role, Content string } `json:"messages"`
		}
		if err := json.NewDecoder(r.Body).Decode(&request); err != nil || len(request.Messages) == 0 {
			http.Error(w, "no messages", http.StatusBadRequest)
			return
		}
		prompt := request.Messages[0].Content
		if strings.Contains(prompt, "slow") {
			held <- struct{}{}
			select {
			case <-free:
			case <-r.Context().Done():
				return
			}
		}
		w.Header().Set("Content-Type", "text/event-stream")
		text, _ := json.Marshal(prompt)
		fmt.Fprintf(w,
			`data: {"object":"chat.completion.chunk","choices":[{"index":0,"delta":{"role":"assistant","content":%s},"finish_reason":null}]}`+"\n\n", text)
		fmt.Fprint(w, `data: {"object":"chat.completion.chunk","choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}`+"\n\ndata: [DONE]\n\n")
	}))
	t.Cleanup(server.Close)
	t.Setenv("OPENAI_BASE_URL", server.URL)
	t.Setenv("OPENAI_API_KEY", "none")
	return held, free
}

// watchedFolder is a mesh that watches a folder with agents.
type watchedFolder struct {
	*runningMesh
	t    *testing.T
	dir  string
	logs *observer.ObservedLogs
}

// agentYAML returns the declaration of an agent whose system prompt is in prompts/NAME.md.
func agentYAML(name, more string) string {
	return "apiVersion: troupe.dev/v1\nkind: Agent\nmetadata: {name: " + name + "}\nspec:\n  model: openai/parrot\n  instructions: {file: prompts/" + name + ".md}\n" + more
}

func watchFolder(t *testing.T, files map[string]string) *watchedFolder {
	t.Helper()
	return watchFolderAt(t, t.TempDir(), files)
}

func watchFolderAt(t *testing.T, dir string, files map[string]string) *watchedFolder {
	t.Helper()
	f := &watchedFolder{t: t, dir: dir}
	for name, text := range files {
		f.write(name, text)
	}
	core, logs := observer.New(zap.InfoLevel)
	cfg := standalone.Config{
		DataDir: t.TempDir(), GRPCAddr: "127.0.0.1:0", HTTPAddr: "127.0.0.1:0",
		Agents: os.DirFS(f.dir), Watch: f.dir, Drain: 10 * time.Second,
	}
	f.runningMesh, f.logs = runMeshWith(t, telemetry.FromLogger(zap.New(core)), cfg), logs
	return f
}

// write replaces a file atomically, as editors do.
func (f *watchedFolder) write(name, text string) {
	f.t.Helper()
	path := filepath.Join(f.dir, name)
	require.NoError(f.t, os.MkdirAll(filepath.Dir(path), 0o700))
	tempFile := filepath.Join(filepath.Dir(path), "."+filepath.Base(path)+".tmp")
	require.NoError(f.t, os.WriteFile(tempFile, []byte(text), 0o600))
	require.NoError(f.t, os.Rename(tempFile, path))
}

// edit changes a file and waits until all new turns of the agent go to the new instance.
func (f *watchedFolder) edit(agent, name, text string) {
	f.t.Helper()
	before := f.instances(agent)
	f.write(name, text)
	await(f.t, agent+" has a successor", func() bool {
		now := f.instances(agent)
		return len(now) == 1 && now[0] != before[0]
	})
}

func (f *watchedFolder) instances(agent string) (ids []string) {
	f.t.Helper()
	resp, err := f.ListInstances(f.t.Context(), &troupev1.ListInstancesRequest{Agent: agent})
	require.NoError(f.t, err)
	for _, in := range resp.GetInstances() {
		if in.GetState() == troupev1.InstanceState_INSTANCE_STATE_READY && in.GetDesired() != troupev1.DesiredState_DESIRED_STATE_DRAIN {
			ids = append(ids, in.GetInstanceId())
		}
	}
	return ids
}

func (f *watchedFolder) askAgent(agent string) string {
	f.t.Helper()
	_, result := f.ask(f.t, &troupev1.OrchestrateRequest{Target: agent}, "How do people greet?")
	require.Equal(f.t, troupev1.TurnOutcome_TURN_OUTCOME_COMPLETED, result.GetOutcome(), "%v", result)
	return result.GetText()
}

// awaitLog waits until the log contains the text.
func (f *watchedFolder) awaitLog(text string) {
	f.t.Helper()
	await(f.t, text, func() bool { return f.hasLogged(text) > 0 })
}

func (f *watchedFolder) hasLogged(text string) int {
	return f.logs.Filter(func(e observer.LoggedEntry) bool { return strings.Contains(e.Message, text) }).Len()
}

func TestWatch_ChangedFileAffectsOnlyNewTurns(t *testing.T) {
	asked, release := serveEchoModel(t)
	f := watchFolder(t, map[string]string{"a.yaml": agentYAML("a", "") + "---\n" + agentYAML("b", ""), "prompts/a.md": "one, slow", "prompts/b.md": "I am b."})
	other := f.instances("b")
	ended := make(chan string, 1)
	go func() {
		text := ""
		for e, err := range f.Turn(t.Context(), &troupev1.OrchestrateRequest{Target: "a", Input: &troupev1.OrchestrateRequest_Text{Text: "Hello?"}}) {
			if err != nil {
				text = err.Error()
			} else if e.GetTurnResult() != nil {
				text = e.GetTurnResult().GetText()
			}
		}
		ended <- text
	}()
	select {
	case <-asked:
	case <-time.After(testTimeout):
		require.FailNow(t, "the model was not asked")
	}

	f.edit("a", "prompts/a.md", "two")
	require.Equal(t, "two", f.askAgent("a"))
	close(release)
	require.Equal(t, "one, slow", <-ended)

	f.edit("a", "a.yaml", agentYAML("a", "  version: \"3\"\n")+"---\n"+agentYAML("b", ""))
	require.Equal(t, "two", f.askAgent("a"))
	f.write("notes.txt", "no agent reads this")
	f.edit("a", "prompts/a.md", "three")
	require.Equal(t, "three", f.askAgent("a"))
	require.Equal(t, other, f.instances("b"), "b is as it was")
	require.Zero(t, f.hasLogged("many registrations vanished"), "no instance was lost")
}

// Files that a tool reads at startup are part of the agent if they are in the folder.
func TestWatch_ChangedToolFilesTakeEffect(t *testing.T) {
	serveEchoModel(t)
	dir := t.TempDir()
	docs := filepath.Join(dir, "docs")
	f := watchFolderAt(t, dir, map[string]string{
		"a.yaml": agentYAML("a", ""), "prompts/a.md": "one",
		"b.yaml":        "apiVersion: troupe.dev/v1\nkind: Agent\nmetadata: {name: b}\nspec:\n  model: builtin/extractive\n  tools: [{builtin: search_documents, with: {path: " + docs + "}}]\n",
		"docs/hello.md": "People in Norway greet with hei.\n",
	})
	other := f.instances("a")
	require.Contains(t, f.askAgent("b"), "with hei.")
	f.edit("b", "docs/hello.md", "People in France greet with bonjour.\n")
	require.Contains(t, f.askAgent("b"), "with bonjour.")
	f.edit("b", "docs/more.md", "People in Kenya greet with jambo.\n")
	require.Contains(t, f.askAgent("b"), "with jambo.")
	require.Equal(t, other, f.instances("a"))
}

func TestWatch_ReportsErrorsAndChangesNothing(t *testing.T) {
	serveEchoModel(t)
	f := watchFolder(t, map[string]string{"a.yaml": agentYAML("a", ""), "b.yaml": agentYAML("b", ""), "prompts/a.md": "one", "prompts/b.md": "I am b."})
	before := f.instances("a")
	f.write("a.yaml", strings.Replace(agentYAML("a", ""), "model", "modle", 1))
	f.awaitLog(`not reloaded: a.yaml:5: unknown field "modle"; did you mean "model"?`)
	f.write("a.yaml", agentYAML("a", "  tools: [{builtin: search_documents, with: {path: "+f.dir+"/nowhere}}]\n"))
	f.awaitLog("nowhere does not exist")
	f.write("a.yaml", "spec: [")
	f.awaitLog(`not reloaded: a.yaml:1: this is not YAML`)
	f.edit("b", "prompts/b.md", "I am another b.")
	require.Equal(t, "I am another b.", f.askAgent("b"))
	require.Equal(t, "one", f.askAgent("a"))
	require.Equal(t, before, f.instances("a"))

	f.write("prompts/a.md", "two") // the file that names it is still invalid
	f.write("a.yaml", agentYAML("a", ""))
	f.awaitLog("the declaration is valid again")
	await(t, "the file that is right again takes effect", func() bool { return f.askAgent("a") == "two" })
}

func TestWatch_AddsAndRemovesAgentsWithTheirFiles(t *testing.T) {
	serveEchoModel(t)
	f := watchFolder(t, map[string]string{"a.yaml": agentYAML("a", ""), "prompts/a.md": "one"})
	f.write("prompts/b.md", "I am b.")
	f.write("b.yaml", agentYAML("b", ""))
	await(t, "b is there", func() bool { return f.readyInstances(t, "b") == 1 })
	require.Equal(t, "I am b.", f.askAgent("b"))

	require.NoError(t, os.Remove(filepath.Join(f.dir, "b.yaml")))
	await(t, "b is gone", func() bool {
		resp, err := f.ListInstances(t.Context(), &troupev1.ListInstancesRequest{Agent: "b"})
		return err == nil && len(resp.GetInstances()) == 0
	})
	for _, err := range f.Turn(t.Context(), &troupev1.OrchestrateRequest{Target: "b", Input: &troupev1.OrchestrateRequest_Text{Text: "Hello?"}}) {
		require.Equal(t, failure.NotFound, failure.ModeOf(err), "%v", err)
	}
	require.NoError(t, os.Remove(filepath.Join(f.dir, "a.yaml")))
	f.awaitLog("not reloaded: ") // the last agent stays
	require.Equal(t, "one", f.askAgent("a"))
}

func TestWatch_NoTurnFailsWhileAgentsAreReplaced(t *testing.T) {
	serveEchoModel(t)
	f := watchFolder(t, map[string]string{"a.yaml": agentYAML("a", ""), "prompts/a.md": "version 0"})
	over := make(chan struct{})
	var load sync.WaitGroup
	var mu sync.Mutex
	said, wrong := map[string]int{}, []string{}
	for range 4 {
		load.Go(func() {
			for {
				select {
				case <-over:
					return
				default:
				}
				text, problem := "", "no result"
				for e, err := range f.Turn(t.Context(), &troupev1.OrchestrateRequest{Target: "a", Input: &troupev1.OrchestrateRequest_Text{Text: "Hello?"}}) {
					switch {
					case err != nil:
						problem = err.Error()
					case e.GetTurnResult() != nil && e.GetTurnResult().GetOutcome() == troupev1.TurnOutcome_TURN_OUTCOME_COMPLETED:
						text, problem = e.GetTurnResult().GetText(), ""
					case e.GetTurnResult() != nil:
						problem = e.GetTurnResult().String()
					}
				}
				mu.Lock()
				said[text]++
				if problem != "" {
					wrong = append(wrong, problem)
				}
				mu.Unlock()
			}
		})
	}
	for i := range 8 {
		f.edit("a", "prompts/a.md", fmt.Sprintf("version %d", i+1))
		require.Equal(t, fmt.Sprintf("version %d", i+1), f.askAgent("a"))
	}
	close(over)
	load.Wait()
	require.Empty(t, wrong)
	t.Logf("turns by version: %v", said)
}
