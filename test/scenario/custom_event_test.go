package scenario

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
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

// newSeller returns an agent that emits events of its own. What the user says is a limit that it exceeds, or nothing.
func newSeller() (*agent.Agent, error) {
	var replies []scripted.Reply
	for range 8 {
		replies = append(replies, scripted.Say("Sold."))
	}
	return agent.New(agent.Config{Name: "seller", Description: "Sells.", Model: scripted.New(replies...), Handlers: []hook.Handler{
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
	}})
}

// An event of a kind that a handler defines is numbered, streamed and stored as all others, in a program and in a mesh.
//
// Req: AD-37
func TestCustomEvents_AreLikeAllOthersInBothRuntimes(t *testing.T) {
	t.Parallel()
	m := rig.StartInProcess(t, rig.Config{})
	m.HostWorker("seller", rig.Program{Instance: "seller", Agent: "seller", DrainTimeout: time.Second, NewAgent: newSeller})
	m.Await("the seller is ready", func() bool { return m.IsReady("seller") })
	inProgram, err := newSeller()
	require.NoError(t, err)
	session, err := local.Open(t.Context(), inProgram, local.Config{})
	require.NoError(t, err)
	t.Cleanup(func() {
		require.NoError(t, errors.Join(session.Close(context.WithoutCancel(t.Context())), inProgram.Close()))
	})

	want := []string{`order.placed {"city":"Łódź","pieces":2}`, "seen [1,null]", "idle "}
	for _, said := range []string{"Hello", "too many", "too large"} {
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

		if said == "Hello" {
			require.Equal(t, want, there)
			require.NoError(t, failed)
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
