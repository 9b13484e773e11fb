package scenario

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/troupe-dev/troupe/pkg/agent"
	"github.com/troupe-dev/troupe/pkg/agent/local"
	"github.com/troupe-dev/troupe/pkg/conversation"
	troupev1 "github.com/troupe-dev/troupe/pkg/gen/troupe/v1"
	"github.com/troupe-dev/troupe/pkg/hook"
	"github.com/troupe-dev/troupe/pkg/llm"
	"github.com/troupe-dev/troupe/pkg/memory"
	"github.com/troupe-dev/troupe/pkg/memory/inmem"
	"github.com/troupe-dev/troupe/pkg/session"
	"github.com/troupe-dev/troupe/pkg/tool"
	"github.com/troupe-dev/troupe/test/rig"
)

const (
	countingSessions = 8
	countingTurns    = 100 // of each session
)

// countingModel is a model that calls the tool count once in each turn.
type countingModel struct{}

func (countingModel) Name() string { return "test/counter" }

func (countingModel) Generate(_ context.Context, req llm.Request) iter.Seq2[llm.Delta, error] {
	said := llm.Delta{Text: "Counted."}
	if req.Messages[len(req.Messages)-1].Role == conversation.RoleUser {
		said = llm.Delta{ToolCalls: []conversation.ToolCall{{ID: "1", Name: "count", Arguments: "{}"}}}
	}
	return func(yield func(llm.Delta, error) bool) { yield(said, nil) }
}

// newCountingAgent returns an agent that counts the turns of its user.
func newCountingAgent() (*agent.Agent, error) {
	return newAgentThatCounts("counter", countingModel{}, new(atomic.Int64))
}

// newAgentThatCounts returns an agent with a tool that counts in a key of its user. calls counts its calls.
func newAgentThatCounts(name string, model llm.Model, calls *atomic.Int64) (*agent.Agent, error) {
	count, err := tool.Func("count", "Counts.", func(ctx context.Context, _ struct{}) (string, error) {
		calls.Add(1)
		n, err := hook.InTool(ctx).Memory().Increment(ctx, "user:n", 1)
		return fmt.Sprint(n), err
	})
	if err != nil {
		return nil, err
	}
	return agent.New(agent.Config{Name: name, Description: "Counts.", Model: model, Tools: []tool.Tool{count}})
}

// interruptedCountingModel is a countingModel that never answers its first question about the result of the tool.
type interruptedCountingModel struct {
	countingModel
	once  sync.Once
	asked chan struct{} // closed when it does not answer
}

func (c *interruptedCountingModel) Generate(ctx context.Context, req llm.Request) iter.Seq2[llm.Delta, error] {
	if req.Messages[len(req.Messages)-1].Role == conversation.RoleTool {
		c.once.Do(func() {
			close(c.asked)
			<-ctx.Done()
		})
	}
	return c.countingModel.Generate(ctx, req)
}

// A worker is lost after its tool has counted, and another session counts before a successor takes the step over. The
// successor does not run the tool again, and its count is added to the count of the other session.
//
// Req: AD-18, LP-27
func TestSharedState_SuccessorAddsTheCountOfALostWorker(t *testing.T) {
	t.Parallel()
	m := rig.StartInProcess(t, rig.Config{})
	model, calls := &interruptedCountingModel{asked: make(chan struct{})}, new(atomic.Int64)
	host := func(id, name string, newAgent func() (*agent.Agent, error)) {
		m.HostWorker(rig.Part(id), rig.Program{Instance: id, Agent: name, DrainTimeout: time.Second, NewAgent: newAgent})
		m.Await(id+" is ready", func() bool { return m.IsReady(rig.Part(id)) })
	}
	lost := func() (*agent.Agent, error) { return newAgentThatCounts("lost", model, calls) }
	host("lost-1", "lost", lost)
	host("counter-1", "counter", newCountingAgent)
	user := "user-" + uuid.NewString()
	ask := func(name string) (*troupev1.OrchestrateRequest, []*troupev1.Event) {
		req := textRequest("count")
		req.Target, req.UserId = name, user
		events, err := collectEvents(t.Context(), m, req)
		if err != nil || turnResult(events).GetText() != "Counted." {
			t.Errorf("agent %s: %v, %v", name, err, events)
		}
		return req, events
	}
	var running sync.WaitGroup
	running.Go(func() { ask("lost") })
	<-model.asked
	other, _ := ask("counter")
	host("lost-2", "lost", lost)
	m.Kill("lost-1")
	running.Wait()
	state, err := m.Sessions.GetSessionState(t.Context(), &troupev1.GetSessionStateRequest{SessionId: other.GetSessionId()})
	require.NoError(t, err)
	require.Equal(t, "2", state.GetValues()["user:n"])
	require.EqualValues(t, 1, calls.Load(), "the tool ran once")
}

// Sessions of a user that count in the same key lose no count.
//
// Req: AD-18, AD-19
func TestSharedState_LosesNoUpdateInAMesh(t *testing.T) {
	t.Parallel()
	m := rig.StartInProcess(t, rig.Config{})
	for n := range 2 {
		part := rig.Part(fmt.Sprintf("counter-%d", n+1))
		m.HostWorker(part, rig.Program{Instance: string(part), Agent: "counter", DrainTimeout: time.Second, NewAgent: newCountingAgent})
		m.Await(string(part)+" is ready", func() bool { return m.IsReady(part) })
	}
	user, ids := "user-"+uuid.NewString(), make([]string, countingSessions)
	var running sync.WaitGroup
	for i := range ids {
		ids[i] = uuid.NewString()
		running.Go(func() {
			for range countingTurns {
				req := textRequest("count")
				req.SessionId, req.Target, req.UserId = ids[i], "counter", user
				events, err := collectEvents(t.Context(), m, req)
				if err != nil || turnResult(events).GetText() != "Counted." {
					t.Errorf("session %d: %v, %v", i, err, events)
					return
				}
			}
		})
	}
	running.Wait()
	state, err := m.Sessions.GetSessionState(t.Context(), &troupev1.GetSessionStateRequest{SessionId: ids[0]})
	require.NoError(t, err)
	require.Equal(t, fmt.Sprint(countingSessions*countingTurns), state.GetValues()["user:n"])
}

// Req: AD-18, AD-19
func TestSharedState_LosesNoUpdateInAProgram(t *testing.T) {
	t.Parallel()
	store := inmem.New(inmem.Config{})
	var running sync.WaitGroup
	for range countingSessions {
		running.Go(func() {
			a, err := newCountingAgent()
			if err != nil {
				t.Errorf("newCountingAgent: %v", err)
				return
			}
			s, err := local.Open(t.Context(), a, local.Config{Store: store, User: "alice"})
			if err != nil {
				t.Errorf("Open: %v", err)
				return
			}
			for range countingTurns {
				if done, err := s.Execute(t.Context(), local.Input{Text: "count"}, nil); err != nil || done.Result.Text != "Counted." {
					t.Errorf("Execute: %v, %v", done, err)
					return
				}
			}
			if err := s.Close(t.Context()); err != nil {
				t.Errorf("Close: %v", err)
			}
		})
	}
	running.Wait()
	ref := session.Ref{Tenant: local.DefaultTenant, Session: "other"}
	_, err := store.UpdateSession(t.Context(), memory.SessionUpdate{Ref: ref, Create: true, User: "alice"})
	require.NoError(t, err)
	state, err := store.GetState(t.Context(), ref)
	require.NoError(t, err)
	require.Equal(t, fmt.Sprint(countingSessions*countingTurns), string(state.Values["user:n"]))
}

// newOverwritingAgent returns an agent that reads a key of its user, and sets it after another session has changed it.
func newOverwritingAgent(change func(ctx context.Context) error) (*agent.Agent, error) {
	count, err := tool.Func("count", "Counts.", func(ctx context.Context, _ struct{}) (string, error) {
		m := hook.InTool(ctx).Memory()
		if _, err := m.Get(ctx, "user:n"); err != nil && !errors.Is(err, hook.ErrNoKey) {
			return "", err
		}
		return "", errors.Join(change(ctx), m.Set("user:n", "mine"))
	})
	if err != nil {
		return nil, err
	}
	return agent.New(agent.Config{Name: "overwriter", Description: "Counts.", Model: countingModel{}, Tools: []tool.Tool{count}})
}

// An agent that overwrites a key after another session changed it receives a warning.
//
// Req: AD-19
func TestSharedState_ReportsAnOverwrittenChange(t *testing.T) {
	t.Parallel()
	m := rig.StartInProcess(t, rig.Config{})
	user := "user-" + uuid.NewString()
	ask := func(ctx context.Context, agent string) ([]*troupev1.Event, error) {
		req := textRequest("count")
		req.Target, req.UserId = agent, user
		return collectEvents(ctx, m, req)
	}
	change := func(ctx context.Context) error { _, err := ask(ctx, "counter"); return err }
	for name, newAgent := range map[string]func() (*agent.Agent, error){
		"counter": newCountingAgent, "overwriter": func() (*agent.Agent, error) { return newOverwritingAgent(change) },
	} {
		part := rig.Part(name + "-1")
		m.HostWorker(part, rig.Program{Instance: string(part), Agent: name, DrainTimeout: time.Second, NewAgent: newAgent})
		m.Await(name+" is ready", func() bool { return m.IsReady(part) })
	}
	warnings := func() (reasons []string) {
		events, err := ask(t.Context(), "overwriter")
		require.NoError(t, err)
		require.Equal(t, "Counted.", turnResult(events).GetText())
		for _, e := range events {
			if w := e.GetWarning(); w != nil {
				reasons = append(reasons, w.GetReason())
			}
		}
		return reasons
	}
	require.Equal(t, []string{"STATE_OVERWRITTEN"}, warnings())
	change = func(context.Context) error { return nil }
	require.Empty(t, warnings())
}
