package loop_test

import (
	"context"
	"fmt"
	"os"

	"github.com/troupe-dev/troupe/internal/loop"
	"github.com/troupe-dev/troupe/pkg/conversation"
	"github.com/troupe-dev/troupe/pkg/event"
	"github.com/troupe-dev/troupe/pkg/hook"
	"github.com/troupe-dev/troupe/pkg/llm/scripted"
	"github.com/troupe-dev/troupe/pkg/tool"
)

// A loop needs a model and messages. It ends early if the consumer stops reading its events.
func ExampleLoop_Run() {
	add, err := tool.Func("add", "Adds two numbers.", func(_ context.Context, in struct{ A, B int }) (int, error) { return in.A + in.B, nil })
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return
	}
	tools, err := tool.NewSet(add)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return
	}
	l := loop.Loop{Tools: tools, Model: scripted.New(
		scripted.Call(conversation.ToolCall{ID: "1", Name: "add", Arguments: `{"A": 2, "B": 40}`}),
		scripted.Say("It is 42."),
	)}
	turn := hook.New(hook.Start{Messages: []conversation.Message{conversation.User("How much is 2 and 40?")}})
	for e, err := range l.Run(context.Background(), loop.Input{System: "Be exact.", Control: turn}) {
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			return
		}
		switch p := e.Payload.(type) {
		case event.ToolFinished:
			fmt.Fprintln(os.Stdout, p.Tool, p.Status, p.Result)
		case event.Answer:
			fmt.Fprintln(os.Stdout, p.Text, p.Reason, p.Iterations)
		}
	}
	// Output:
	// add success 42
	// It is 42. natural 2
}
