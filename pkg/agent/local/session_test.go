package local_test

import (
	"context"
	"iter"
	"maps"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/troupe-dev/troupe/internal/memoryrpc"
	"github.com/troupe-dev/troupe/internal/rpc"
	"github.com/troupe-dev/troupe/internal/telemetry"
	"github.com/troupe-dev/troupe/internal/toolrounds"
	"github.com/troupe-dev/troupe/pkg/agent"
	"github.com/troupe-dev/troupe/pkg/agent/local"
	"github.com/troupe-dev/troupe/pkg/conversation"
	"github.com/troupe-dev/troupe/pkg/event"
	"github.com/troupe-dev/troupe/pkg/failure"
	"github.com/troupe-dev/troupe/pkg/llm"
	"github.com/troupe-dev/troupe/pkg/llm/scripted"
	"github.com/troupe-dev/troupe/pkg/memory"
	"github.com/troupe-dev/troupe/pkg/memory/inmem"
	"github.com/troupe-dev/troupe/pkg/session"
	service "github.com/troupe-dev/troupe/services/memory/app"
	"github.com/troupe-dev/troupe/test/redistest"
)

// sessionTests are tests that run on each kind of store.
type sessionTests map[string]func(*testing.T, memory.Store)

func (s sessionTests) run(t *testing.T, store memory.Store) {
	t.Helper()
	for name, test := range s {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test(t, store)
		})
	}
}

func allSessionTests() sessionTests {
	all := sessionTests{}
	for _, some := range []sessionTests{turnTests(), lifeTests(), lostTests(), saveTests(), compactTests(), answerTests(), exportTests()} {
		maps.Copy(all, some)
	}
	return all
}

func TestSession_InRAM(t *testing.T) { allSessionTests().run(t, inmem.New(inmem.Config{})) }

// The same tests run against a memory service on a Redis that persists each write.
func TestSession_OverTheMemoryService(t *testing.T) {
	allSessionTests().run(t, memoryService(t))
}

func memoryService(t *testing.T) memory.Store {
	t.Helper()
	_, store := servedMemory(t)
	return store
}

// servedMemory starts a memory service and returns its address and the store behind it.
func servedMemory(t *testing.T) (address string, store memory.Store) {
	t.Helper()
	app, err := service.New(telemetry.Discard(), service.Config{
		GRPCAddr: "127.0.0.1:0", HTTPAddr: "127.0.0.1:0", Redis: "redis://" + redistest.Start(t), Grace: 5 * time.Second,
	})
	require.NoError(t, err)
	conn, err := rpc.Dial(app.GRPCAddr(), telemetry.Discard())
	require.NoError(t, err)
	ctx, stop := context.WithCancel(context.WithoutCancel(t.Context()))
	ready, done := make(chan struct{}), make(chan error, 1)
	go func() { done <- app.Run(ctx, func() { close(ready) }) }()
	t.Cleanup(func() {
		require.NoError(t, conn.Close())
		stop()
		require.NoError(t, <-done)
	})
	<-ready
	return app.GRPCAddr(), memoryrpc.New(conn)
}

// openSession opens a session of an agent, and closes the session when the test ends.
func openSession(t *testing.T, a *agent.Agent, c local.Config) *local.Session {
	t.Helper()
	s, err := local.Open(t.Context(), a, c)
	require.NoError(t, err)
	t.Cleanup(func() { _ = s.Close(context.WithoutCancel(t.Context())) })
	return s
}

// scriptedAgent returns an agent and its model, which gives the replies in order.
func scriptedAgent(t *testing.T, c agent.Config, replies ...scripted.Reply) (*agent.Agent, *scripted.Model) {
	t.Helper()
	model := scripted.New(replies...)
	c.Model = model
	return build(t, c), model
}

// runTurn runs a turn and returns its events without text deltas. It fails the test if an event follows an error.
func runTurn(t *testing.T, s *local.Session, in local.Input) ([]event.Event, error) {
	t.Helper()
	return runTurnUnder(t.Context(), t, s, in)
}

func runTurnUnder(ctx context.Context, t *testing.T, s *local.Session, in local.Input) (all []event.Event, failed error) {
	t.Helper()
	for e, err := range s.Turn(ctx, in) {
		require.NoError(t, failed, "nothing comes after an error")
		if err != nil {
			failed = err
			continue
		}
		require.False(t, strings.HasPrefix(e.Kind(), event.InternalPrefix))
		if _, delta := e.Payload.(event.TextDelta); !delta {
			all = append(all, e)
		}
	}
	results := 0
	for _, e := range all {
		if _, ok := e.Payload.(event.TurnResult); ok {
			results++
		}
	}
	require.Equal(t, 1, results)
	require.IsType(t, event.TurnResult{}, all[len(all)-1].Payload)
	return all, failed
}

func resultOf(all []event.Event) event.TurnResult {
	done, _ := all[len(all)-1].Payload.(event.TurnResult)
	return done
}

// ask runs a turn that must succeed, and returns its result.
func ask(t *testing.T, s *local.Session, text string) event.TurnResult {
	t.Helper()
	all, err := runTurn(t, s, local.Input{Text: text})
	require.NoError(t, err)
	require.NotEqual(t, event.Failed, resultOf(all).Reason)
	return resultOf(all)
}

// requireRejected runs a turn that must be rejected: its only event is the result, and no error follows.
func requireRejected(t *testing.T, s *local.Session, mode failure.Mode) event.TurnResult {
	t.Helper()
	all, err := runTurn(t, s, local.Input{Text: "and me"})
	require.NoError(t, err)
	require.Len(t, all, 1)
	done := resultOf(all)
	require.Equal(t, event.Failed, done.Reason)
	require.Equal(t, string(mode), done.ErrorType, "%v", done.Result.Failure)
	require.Equal(t, mode, done.Result.Failure.Mode)
	return done
}

// transcript returns a short form of a conversation: "user: hello", "ai: hi", "call: lookup", "tool: found".
func transcript(messages []conversation.Message) []string {
	var all []string
	for _, m := range messages {
		text := m.Text
		for _, c := range m.ToolCalls {
			text += " → " + c.Name
		}
		if m.Partial {
			text += " (partial)"
		}
		switch m.Role {
		case conversation.RoleUser:
			all = append(all, "user: "+text)
		case conversation.RoleTool:
			all = append(all, "tool: "+text)
		case conversation.RoleSummary:
			all = append(all, "summary")
		default:
			all = append(all, "ai: "+strings.TrimSpace(text))
		}
	}
	return all
}

// storedMessages returns the conversation and the session as another process reads them.
func storedMessages(t *testing.T, store memory.Store, s *local.Session) ([]string, session.Session) {
	t.Helper()
	ref := session.Ref{Tenant: local.DefaultTenant, Session: s.ID()}
	info, err := store.GetSession(t.Context(), ref)
	require.NoError(t, err)
	messages, err := store.LoadHistory(t.Context(), ref, 0, memory.MaxWindow)
	require.NoError(t, err)
	rounds, err := store.LoadRounds(t.Context(), ref, "research", 0, nil)
	require.NoError(t, err)
	return transcript(toolrounds.Merge(messages, rounds)), info
}

func kindsOf(all []event.Event) []string {
	var kinds []string
	for _, e := range all {
		kinds = append(kinds, e.Kind())
	}
	return kinds
}

// topic holds the arguments of the tools in these tests.
type topic struct {
	Query string `json:"query"`
}

// echoModel is a model that repeats the user's last text.
type echoModel struct{}

func (echoModel) Name() string { return "test/echo" }

func (echoModel) Generate(ctx context.Context, req llm.Request) iter.Seq2[llm.Delta, error] {
	last := ""
	for _, m := range req.Messages {
		if m.Role == conversation.RoleUser {
			last = m.Text
		}
	}
	return scripted.New(scripted.Say("echo "+last)).Generate(ctx, req)
}
