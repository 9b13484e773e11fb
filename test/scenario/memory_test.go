package scenario

import (
	"context"
	"iter"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/troupe-dev/troupe/pkg/agent"
	"github.com/troupe-dev/troupe/pkg/conversation"
	troupev1 "github.com/troupe-dev/troupe/pkg/gen/troupe/v1"
	"github.com/troupe-dev/troupe/pkg/llm"
	"github.com/troupe-dev/troupe/pkg/tool"
	"github.com/troupe-dev/troupe/test/rig"
)

// searcher is a model that searches for what the user wants to find, and opens a hit of an earlier search. It records the
// messages that it gets.
type searcher struct {
	mu       sync.Mutex
	requests [][]conversation.Message
}

const hits = "1: https://a.example\n2: https://b.example\n3: https://c.example"

func (*searcher) Name() string { return "test/searcher" }

func (s *searcher) Generate(_ context.Context, req llm.Request) iter.Seq2[llm.Delta, error] {
	s.mu.Lock()
	s.requests = append(s.requests, req.Messages)
	s.mu.Unlock()
	said := llm.Delta{Text: "I do not know which hits you mean."}
	switch last := req.Messages[len(req.Messages)-1]; {
	case last.Role == conversation.RoleTool:
		said.Text = "I found three hits."
	case strings.HasPrefix(last.Text, "find"):
		said = llm.Delta{ToolCalls: []conversation.ToolCall{{ID: "1", Name: "search", Arguments: `{"words":"troupe"}`}}}
	default:
		for _, m := range req.Messages {
			if _, third, found := strings.Cut(m.Text, "3: "); found && m.Role == conversation.RoleTool {
				said.Text = "I open " + third + "."
			}
		}
	}
	return func(yield func(llm.Delta, error) bool) { yield(said, nil) }
}

// newSearchAgent returns an agent with a search tool that counts its calls.
func newSearchAgent(model llm.Model, calls *int) (*agent.Agent, error) {
	search, err := tool.Func("search", "Searches the web.", func(context.Context, struct {
		Words string `json:"words"`
	},
	) (string, error) {
		*calls++
		return hits, nil
	})
	if err != nil {
		return nil, err
	}
	return agent.New(agent.Config{Name: "searcher", Description: "Searches.", Model: model, Tools: []tool.Tool{search}})
}

// An agent remembers its tool calls of earlier turns, also when another worker runs the next turn. What it is asked then
// begins with what it was asked before, so that caches of prompts hit.
//
// Req: LP-45
func TestMemory_AgentRemembersItsToolRounds(t *testing.T) {
	t.Parallel()
	m := rig.StartInProcess(t, rig.Config{})
	model, calls := &searcher{}, 0
	host := func(id string) rig.Part {
		part := rig.Part(id)
		m.HostWorker(part, rig.Program{
			Instance: id, Agent: "searcher", DrainTimeout: time.Second,
			NewAgent: func() (*agent.Agent, error) { return newSearchAgent(model, &calls) },
		})
		m.Await(id+" is ready", func() bool { return m.IsReady(part) })
		return part
	}
	ask := func(session, question string) []*troupev1.Event {
		req := textRequest(question)
		req.SessionId, req.Target = session, "searcher"
		return runTurn(t, m, req)
	}
	session := uuid.NewString()
	first := host("searcher-1")
	require.Equal(t, "I found three hits.", turnResult(ask(session, "find troupe")).GetText())
	m.Stop(first)
	host("searcher-2")
	opened := ask(session, "open the third hit")
	require.Equal(t, "I open https://c.example.", turnResult(opened).GetText())
	require.Equal(t, 1, calls, "it did not search again")
	require.Equal(t, "I do not know which hits you mean.", turnResult(ask(uuid.NewString(), "open the third hit")).GetText(), "another session has no hits")

	fork := &troupev1.OrchestrateRequest{RequestId: uuid.NewString(), From: &troupev1.From{TraceId: opened[0].GetTraceId(), Step: 1, Fork: true}}
	forked := runTurn(t, m, fork)
	require.NotEqual(t, session, forked[0].GetSessionId())
	require.Equal(t, "I open https://c.example.", turnResult(forked).GetText(), "a fork remembers as well")

	before, after := model.requests[1], model.requests[2]
	require.Greater(t, len(after), len(before))
	for i, was := range before { // as a model reads them
		is := after[i]
		require.Equal(t, []any{was.Role, was.Text, was.ToolCalls, was.ToolCallID}, []any{is.Role, is.Text, is.ToolCalls, is.ToolCallID}, "message %d", i)
	}
}
