// Package models tests agents with real models and real tools as a user sees them. The models are called over
// HTTP, in the format of a provider, through a whole mesh.
package models

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/troupe-dev/troupe/internal/openaitest"
	"github.com/troupe-dev/troupe/internal/rpc"
	"github.com/troupe-dev/troupe/internal/telemetry"
	"github.com/troupe-dev/troupe/pkg/client"
	"github.com/troupe-dev/troupe/pkg/conversation"
	troupev1 "github.com/troupe-dev/troupe/pkg/gen/troupe/v1"
	"github.com/troupe-dev/troupe/pkg/llm/llmtest"
	"github.com/troupe-dev/troupe/pkg/llm/openai"
	"github.com/troupe-dev/troupe/services/standalone"
)

func TestMain(m *testing.M) {
	// The SDK of Gemini starts a goroutine when it is imported.
	goleak.VerifyTestMain(m, goleak.IgnoreAnyFunction("go.opencensus.io/stats/view.(*worker).start"))
}

// waitTimeout bounds every wait. It is far longer than any passing test waits.
const waitTimeout = time.Minute

// startProvider starts a server that speaks the OpenAI protocol. Until the test ends, the models of this process
// and its children connect to it.
func startProvider(t *testing.T, answer func(llmtest.DecodedRequest) llmtest.Reply) *llmtest.Server {
	t.Helper()
	return startServer(t, openaitest.Wire{}, answer)
}

// startServer starts a server as startProvider does, in a form of the protocol.
func startServer(t *testing.T, wire openaitest.Wire, answer func(llmtest.DecodedRequest) llmtest.Reply) *llmtest.Server {
	t.Helper()
	s := llmtest.NewServer(t, wire, answer)
	t.Setenv(openai.BaseURLVariable, s.URL+"/v1")
	t.Setenv(openai.KeyVariable, "")
	return s
}

// toolCall returns a reply that calls a tool.
func toolCall(id, name, arguments string) llmtest.Call {
	return llmtest.Call{ID: id, Name: name, ArgumentParts: []string{arguments}}
}

// agentFolder returns a folder that declares one agent, helper.
func agentFolder(t *testing.T, spec string) string {
	t.Helper()
	folder := t.TempDir()
	text := "apiVersion: troupe.dev/v1\nkind: Agent\nmetadata: {name: helper}\nspec:\n" + spec
	require.NoError(t, os.WriteFile(filepath.Join(folder, "helper.yaml"), []byte(text), 0o600))
	return folder
}

// toolResults returns the tool results in a request, keyed by call id.
func toolResults(asked llmtest.DecodedRequest) map[string]string {
	all := map[string]string{}
	for _, m := range asked.Messages {
		if m.Role == conversation.RoleTool {
			all[m.ToolCallID] = m.Text
		}
	}
	return all
}

// startMesh runs what `troupe dev` runs, until the test ends.
func startMesh(t *testing.T, agents string) *client.Client {
	t.Helper()
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	ready, ended := make(chan standalone.Endpoints, 1), make(chan error, 1)
	go func() {
		ended <- standalone.Run(ctx, telemetry.Discard(), standalone.Config{
			DataDir: t.TempDir(), GRPCAddr: "127.0.0.1:0", HTTPAddr: "127.0.0.1:0", Agents: os.DirFS(agents), Drain: 10 * time.Second,
		}, func(e standalone.Endpoints) { ready <- e })
	}()
	var at standalone.Endpoints
	select {
	case at = <-ready:
	case err := <-ended:
		cancel()
		require.FailNow(t, "the mesh ended before it was ready", "%v", err)
	}
	conn, err := rpc.Dial(at.GRPC, telemetry.Discard())
	require.NoError(t, err)
	t.Cleanup(func() {
		require.NoError(t, conn.Close())
		cancel()
		require.NoError(t, <-ended)
	})
	return client.New(conn)
}

// runTurn sends a request to the helper. It returns the tools that were called, in order and each with its status,
// and the answer.
func runTurn(t *testing.T, c *client.Client, text string) (tools []string, answer string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), waitTimeout)
	defer cancel()
	for e, err := range c.Turn(ctx, &troupev1.OrchestrateRequest{Input: &troupev1.OrchestrateRequest_Text{Text: text}, Target: "helper"}) {
		require.NoError(t, err)
		if f := e.GetToolCallFinished(); f != nil {
			tools = append(tools, f.GetTool()+" "+strings.TrimPrefix(f.GetStatus().String(), "TOOL_STATUS_"))
		}
		if r := e.GetTurnResult(); r != nil {
			require.Nil(t, r.GetFailure())
			answer = r.GetText()
		}
	}
	return tools, answer
}
