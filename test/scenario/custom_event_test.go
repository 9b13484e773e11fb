package scenario

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/troupe-dev/troupe/internal/grpcfailure"
	"github.com/troupe-dev/troupe/pkg/agent"
	"github.com/troupe-dev/troupe/pkg/agent/local"
	"github.com/troupe-dev/troupe/pkg/event"
	"github.com/troupe-dev/troupe/pkg/failure"
	troupev1 "github.com/troupe-dev/troupe/pkg/gen/troupe/v1"
	"github.com/troupe-dev/troupe/pkg/hook"
	"github.com/troupe-dev/troupe/pkg/llm/scripted"
	"github.com/troupe-dev/troupe/test/rig"
)

// hookLog has what the hooks of an agent have seen. It is safe for concurrent use.
type hookLog struct {
	mu    sync.Mutex
	lines []string
}

func (l *hookLog) add(format string, args ...any) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.lines = append(l.lines, fmt.Sprintf(format, args...))
}

// take returns the lines since the last call.
func (l *hookLog) take() (lines []string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	lines, l.lines = l.lines, nil
	return lines
}

// runHooks returns handlers around a run, which note in log what they see.
func runHooks(log *hookLog) []hook.Handler {
	note := log.add
	return []hook.Handler{
		hook.OnUserMessage(func(_ context.Context, turn *hook.Turn) (string, error) {
			note("user %s", turn.Info().Prompt)
			return strings.ToUpper(turn.Info().Prompt), nil
		}),
		hook.BeforeRun(func(_ context.Context, turn *hook.Turn) (string, error) {
			note("before %s", turn.Messages()[len(turn.Messages())-1].Text)
			if turn.Info().Prompt == "closed?" {
				return "Closed.", nil
			}
			return "", nil
		}),
		hook.OnEvent(func(_ context.Context, _ *hook.Turn, e event.Event) (event.Payload, error) {
			if e.Kind() != "custom" {
				note("event %s", e.Kind())
			}
			if c, ok := e.Payload.(event.Custom); ok && c.Name == "seen" {
				c.Data = json.RawMessage("[0]")
				return c, nil
			}
			return nil, nil
		}),
		hook.AfterRun(func(_ context.Context, done *hook.Completion) error {
			note("after %s %q %s", done.Reason, done.Result, failure.ModeOf(done.Err))
			return nil
		}),
	}
}

// newSeller returns an agent that emits events of its own. What the user says is a limit that it exceeds, or nothing.
func newSeller(log *hookLog) (*agent.Agent, error) {
	var replies []scripted.Reply
	for range 8 {
		replies = append(replies, scripted.Say("Sold."))
	}
	return agent.New(agent.Config{Name: "seller", Description: "Sells.", Model: scripted.New(replies...), Handlers: append(
		runHooks(log),
		hook.AfterUserInput(func(_ context.Context, turn *hook.Turn) error {
			switch turn.Info().Prompt {
			case "too many":
				for range event.MaxCustomEvents {
					if err := turn.Emit("tick", nil); err != nil {
						return err
					}
				}
			case "too large":
				return turn.Emit("dump", strings.Repeat("x", event.MaxCustomData))
			}
			return turn.Emit("order.placed", map[string]any{"city": "Łódź", "pieces": 2})
		}),
		hook.AfterLLM(func(_ context.Context, reply *hook.LLMReply) error {
			return errors.Join(reply.Emit("seen", json.RawMessage(`[1, null]`)), reply.Emit("idle", nil))
		}),
	)})
}

// An event of a kind that a handler defines is numbered, streamed and stored as all others, in a program and in a mesh. So
// are the hooks around a run the same in both.
//
// Req: AD-37, AD-27
func TestCustomEvents_AreLikeAllOthersInBothRuntimes(t *testing.T) {
	t.Parallel()
	var inProgram, inMesh hookLog
	m := rig.StartInProcess(t, rig.Config{})
	m.HostWorker("seller", rig.Program{Instance: "seller", Agent: "seller", DrainTimeout: time.Second, NewAgent: func() (*agent.Agent, error) {
		return newSeller(&inMesh)
	}})
	m.Await("the seller is ready", func() bool { return m.IsReady("seller") })
	a, err := newSeller(&inProgram)
	require.NoError(t, err)
	session, err := local.Open(t.Context(), a, local.Config{})
	require.NoError(t, err)
	t.Cleanup(func() {
		require.NoError(t, errors.Join(session.Close(context.WithoutCancel(t.Context())), a.Close()))
	})

	want := []string{`order.placed {"city":"Łódź","pieces":2}`, "seen [0]", "idle "}
	for _, said := range []string{"Hello", "closed?", "too many", "too large"} {
		var here []string
		_, failed := session.Execute(t.Context(), local.Input{Text: said}, func(e event.Event) error {
			if c, ok := e.Payload.(event.Custom); ok {
				here = append(here, fmt.Sprintf("%s %s", c.Name, c.Data))
				require.Equal(t, "seller", e.Author)
			}
			return nil
		})
		req := textRequest(said)
		req.Target = "seller"
		events := runTurn(t, m, req)
		there := customEvents(events)
		require.Equal(t, here, there, said)
		require.Equal(t, there, customEvents(storedEvents(t, m, events[0].GetTraceId())), "they are stored")

		seen := inMesh.take()
		require.Equal(t, inProgram.take(), seen, said)
		require.Equal(t, []string{"event user_input", "user " + said, "before " + strings.ToUpper(said)}, seen[:3])
		require.Contains(t, seen[len(seen)-1], "after ")
		switch said {
		case "Hello":
			require.Equal(t, want, there)
			require.NoError(t, failed)
			continue
		case "closed?":
			require.Empty(t, there)
			require.NoError(t, failed)
			require.Equal(t, "Closed.", turnResult(events).GetText())
			continue
		}
		mode, limit := failure.ResourceQuota, "at most 256 events of its own"
		if said == "too large" {
			mode, limit = failure.AgentLogic, "65538 bytes of data are too many; use at most 65536"
		}
		require.True(t, failure.Is(failed, mode), "%v", failed)
		require.ErrorContains(t, failed, limit)
		require.Equal(t, mode, grpcfailure.FromProto(turnResult(events).GetFailure()).Mode)
		require.Contains(t, turnResult(events).GetFailure().GetMessage(), limit)
		require.Equal(t, said == "too many", len(there) == event.MaxCustomEvents)
	}
}

// customEvents returns the custom events among durable events, in order.
func customEvents(events []*troupev1.Event) (all []string) {
	for _, e := range durableEvents(events) {
		if c := e.GetCustom(); c != nil && e.GetAgent() == "seller" && e.GetStep() == 1 {
			all = append(all, c.GetName()+" "+c.GetData())
		}
	}
	return all
}

// storedEvents returns the stored events of a trace that has ended.
func storedEvents(t *testing.T, m *rig.Mesh, id string) (events []*troupev1.Event) {
	t.Helper()
	stream, err := m.WatchTrace(t.Context(), &troupev1.WatchTraceRequest{TraceId: id})
	require.NoError(t, err)
	for {
		e, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			return events
		}
		require.NoError(t, err)
		events = append(events, e.GetEvent())
	}
}
