package scenario

import (
	"context"
	"fmt"
	"iter"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"
	redis "github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/troupe-dev/troupe/pkg/agent"
	"github.com/troupe-dev/troupe/pkg/conversation"
	"github.com/troupe-dev/troupe/pkg/execution"
	troupev1 "github.com/troupe-dev/troupe/pkg/gen/troupe/v1"
	"github.com/troupe-dev/troupe/pkg/llm"
	"github.com/troupe-dev/troupe/pkg/tool"
	"github.com/troupe-dev/troupe/test/redistest"
	"github.com/troupe-dev/troupe/test/rig"
)

// searchingModel is a model that searches for what the user wants to find, and opens a hit of an earlier search. It records the
// messages that it gets.
type searchingModel struct {
	mu       sync.Mutex
	requests [][]conversation.Message
}

const searchHits = "1: https://a.example\n2: https://b.example\n3: https://c.example"

func (*searchingModel) Name() string { return "test/searcher" }

func (s *searchingModel) Generate(_ context.Context, req llm.Request) iter.Seq2[llm.Delta, error] {
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
		return searchHits, nil
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
	model, calls := &searchingModel{}, 0
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

// readingModel is a model that reads the given number of pages in each turn, ten in a round, and then answers.
type readingModel struct{ calls int }

func (readingModel) Name() string { return "test/reader" }

func (r readingModel) Generate(_ context.Context, req llm.Request) iter.Seq2[llm.Delta, error] {
	done := 0
	for _, m := range req.Messages {
		switch m.Role {
		case conversation.RoleTool:
			done++
		case conversation.RoleUser:
			done = 0 // what follows belongs to a new turn
		default:
		}
	}
	said := llm.Delta{Text: "I read them."}
	if done < r.calls {
		said = llm.Delta{}
		for n := done; n < min(done+10, r.calls); n++ {
			said.ToolCalls = append(said.ToolCalls, conversation.ToolCall{ID: strconv.Itoa(n), Name: "read", Arguments: fmt.Sprintf(`{"page":%d}`, n)})
		}
	}
	return func(yield func(llm.Delta, error) bool) { yield(said, nil) }
}

const (
	pageBytes    = 2 << 10 // length of a page that the agent reads
	callsPerTurn = 50      // as many as a turn may make by default
)

// newReadingAgent returns an agent that reads pages with a tool.
func newReadingAgent(calls int) (*agent.Agent, error) {
	read, err := tool.Func("read", "Reads a page.", func(_ context.Context, in struct {
		Page int `json:"page"`
	},
	) (string, error) {
		return fmt.Sprintf("%0*d", pageBytes, in.Page), nil
	})
	if err != nil {
		return nil, err
	}
	return agent.New(agent.Config{Name: "reader", Description: "Reads.", Model: readingModel{calls}, Tools: []tool.Tool{tool.WithEffect(execution.Read, read)}})
}

// The journal of a step becomes the history of its agent and is not written twice. After the commit the two have little
// more than what was read.
//
// Req: LP-45
func TestMemory_StoresToolRoundsOnce(t *testing.T) {
	t.Parallel()
	for _, calls := range []int{1, 10, 50, 200} {
		t.Run(strconv.Itoa(calls), func(t *testing.T) {
			t.Parallel()
			m := rig.StartInProcess(t, rig.Config{})
			m.HostWorker("reader-1", rig.Program{
				Instance: "reader-1", Agent: "reader", DrainTimeout: time.Second,
				NewAgent: func() (*agent.Agent, error) { return newReadingAgent(min(calls, callsPerTurn)) },
			})
			m.Await("the reader is ready", func() bool { return m.IsReady("reader-1") })
			session := uuid.NewString()
			for range max(1, calls/callsPerTurn) {
				req := textRequest("read")
				req.SessionId, req.Target = session, "reader"
				result := turnResult(runTurn(t, m, req))
				require.Equal(t, "I read them.", result.GetText(), "%v", result)
			}

			stored, content := storedBytes(t, m, "jrnl:", "rounds:"), calls*pageBytes
			t.Logf("%3d calls: %7d bytes of content, %7d stored in journal and history: %.2f times", calls, content, stored, float64(stored)/float64(content))
			require.GreaterOrEqual(t, stored, content, "the history is there")
			if calls >= 10 {
				require.LessOrEqual(t, float64(stored), 1.3*float64(content))
			}
		})
	}
}

// storedBytes returns the length of all values in Redis whose key contains one of the names.
func storedBytes(t *testing.T, m *rig.Mesh, names ...string) int {
	t.Helper()
	opts, err := redis.ParseURL(redistest.UserURL(redistest.Admin, m.Stores.Redis.Addr))
	require.NoError(t, err)
	client := redis.NewClient(opts)
	defer client.Close()
	total := 0
	for _, name := range names {
		keys, err := client.Keys(t.Context(), "*"+name+"*").Result()
		require.NoError(t, err)
		for _, key := range keys {
			switch client.Type(t.Context(), key).Val() {
			case "hash":
				for _, v := range client.HVals(t.Context(), key).Val() {
					total += len(v)
				}
			case "stream":
				for _, e := range client.XRange(t.Context(), key, "-", "+").Val() {
					for _, v := range e.Values {
						total += len(v.(string))
					}
				}
			}
		}
	}
	return total
}
