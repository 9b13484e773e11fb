package hookstore_test

import (
	"context"
	"fmt"
	"os"

	"github.com/troupe-dev/troupe/internal/hookstore"
	"github.com/troupe-dev/troupe/pkg/agent"
	"github.com/troupe-dev/troupe/pkg/conversation"
	"github.com/troupe-dev/troupe/pkg/event"
	"github.com/troupe-dev/troupe/pkg/execution"
	"github.com/troupe-dev/troupe/pkg/hook"
	"github.com/troupe-dev/troupe/pkg/llm/scripted"
	"github.com/troupe-dev/troupe/pkg/memory"
	"github.com/troupe-dev/troupe/pkg/memory/inmem"
	"github.com/troupe-dev/troupe/pkg/session"
)

// A store gives an agent access to the state of its session. The caller of the agent commits the changes, as a
// worker does in the mesh.
func ExampleNew() {
	ctx := context.Background()
	store := inmem.New(inmem.Config{})
	begun, err := store.BeginTurn(ctx, memory.Begin{
		Ref: session.Ref{Tenant: "example", Session: "s"}, User: "ann", TurnID: "turn", TraceID: "trace",
		Message: conversation.User("I live in Oslo."), LeaseTTL: memory.MaxLeaseTTL, Window: memory.MaxWindow,
	})
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return
	}
	note := hook.BeforeAgent(func(_ context.Context, turn *hook.Turn) (string, error) {
		return "", turn.Memory().Set("user:city", "Oslo")
	})
	clerk, err := agent.New(agent.Config{Name: "clerk", Model: scripted.New(scripted.Say("Noted.")), Handlers: []hook.Handler{note}})
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return
	}
	lease := memory.Lease{Ref: session.Ref{Tenant: "example", Session: "s"}, TurnID: "turn", Epoch: begun.Turn.Epoch}
	done, err := clerk.Execute(ctx, agent.Invocation{
		Step:  execution.Step{Number: 1, History: begun.History},
		Store: hookstore.New(store, lease, "ann"),
	}, func(event.Event) error { return nil })
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return
	}
	fmt.Fprintf(os.Stdout, "%s user:city = %s\n", done.Result.Text, done.State["user:city"])
	// Output:
	// Noted. user:city = "Oslo"
}
