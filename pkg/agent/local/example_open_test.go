package local_test

import (
	"context"
	"fmt"
	"os"

	"github.com/troupe-dev/troupe/pkg/agent"
	"github.com/troupe-dev/troupe/pkg/agent/local"
	"github.com/troupe-dev/troupe/pkg/event"
	"github.com/troupe-dev/troupe/pkg/llm/scripted"
	"github.com/troupe-dev/troupe/pkg/memory/inmem"
)

// A session in a program of your own. The store in this example lasts as long as the process. With a durable
// store, another process can continue the session by its ID.
func ExampleOpen() {
	ctx := context.Background()
	guide, err := agent.New(agent.Config{
		Name:  "guide",
		Model: scripted.New(scripted.Say("Oslo."), scripted.Say("About 700,000."), scripted.Say("And they are friendly.")),
	})
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return
	}
	s, err := local.Open(ctx, guide, local.Config{Store: inmem.New(inmem.Config{}), ID: "norway"})
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return
	}
	defer s.Close(ctx)

	for _, in := range []local.Input{
		{Text: "What is the capital of Norway?"},
		{Text: "How many people live there?"},
		{Continue: true},
	} {
		for e, err := range s.Turn(ctx, in) {
			if err != nil {
				fmt.Fprintln(os.Stderr, err)
				return
			}
			if done, ok := e.Payload.(event.TurnResult); ok {
				fmt.Fprintf(os.Stdout, "%d: %s\n", done.Turn, done.Result.Text)
			}
		}
	}
	// Output:
	// 1: Oslo.
	// 2: About 700,000.
	// 3: And they are friendly.
}
