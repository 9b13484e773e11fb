// Command greeter runs an agent with a tool, a hook and a plugin. A script replaces the model.
package main

import (
	"context"
	"fmt"
	"os"

	"example.org/outside/audit"
	"example.org/outside/lookup"

	"github.com/troupe-dev/troupe/pkg/agent"
	"github.com/troupe-dev/troupe/pkg/conversation"
	"github.com/troupe-dev/troupe/pkg/event"
	"github.com/troupe-dev/troupe/pkg/execution"
	"github.com/troupe-dev/troupe/pkg/hook"
	"github.com/troupe-dev/troupe/pkg/llm/scripted"
	"github.com/troupe-dev/troupe/pkg/tool"
)

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run() error {
	weather, err := lookup.New()
	if err != nil {
		return err
	}
	greeter, err := agent.New(agent.Config{
		Name: "greeter", Instructions: "Greet the user, and name the weather.",
		Model: scripted.New(scripted.Call(conversation.ToolCall{Name: "weather", Arguments: `{"city": "Oslo"}`}), scripted.Say("Good morning, it is sunny.")),
		Tools: []tool.Tool{weather}, Plugins: []hook.Plugin{audit.New(os.Stdout)},
	})
	if err != nil {
		return err
	}
	step := execution.Step{Number: 1, History: []conversation.Message{conversation.User("Hello from Oslo.")}}
	for e, err := range greeter.Run(context.Background(), agent.Invocation{Step: step}) {
		if err != nil {
			return err
		}
		if done, ok := e.Payload.(event.TurnResult); ok {
			fmt.Println(done.Result.Text)
		}
	}
	return nil
}
