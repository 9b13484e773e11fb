package agent_test

import (
	"context"
	"fmt"
	"os"

	"github.com/troupe-dev/troupe/pkg/agent"
	"github.com/troupe-dev/troupe/pkg/conversation"
	"github.com/troupe-dev/troupe/pkg/event"
	"github.com/troupe-dev/troupe/pkg/execution"
	"github.com/troupe-dev/troupe/pkg/llm/scripted"
	"github.com/troupe-dev/troupe/pkg/tool"
)

// City is what the tool takes; its JSON Schema is inferred.
type City struct {
	Name string `json:"name" jsonschema:"name of the city"`
}

// An agent with a typed Go function as a tool. The model is scripted here; package llm has
// the contract of real ones.
func Example() {
	weather, err := tool.Func("weather", "Tells the weather of a city.",
		func(_ context.Context, in City) (string, error) { return in.Name + ": sunny, 21 °C", nil })
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return
	}
	forecaster, err := agent.New(agent.Config{
		Name:         "forecaster",
		Instructions: "Answer questions about the weather. Use the tool.",
		Model: scripted.New(
			scripted.Call(conversation.ToolCall{Name: "weather", Arguments: `{"name": "Oslo"}`}),
			scripted.Say("It is sunny in Oslo."),
		),
		Tools: []tool.Tool{weather},
	})
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return
	}

	step := execution.Step{Number: 1, History: []conversation.Message{conversation.User("Do I need an umbrella in Oslo?")}}
	result, messages, err := forecaster.Run(context.Background(), step, func(e event.Event) error {
		if done, ok := e.(event.ToolFinished); ok {
			fmt.Fprintln(os.Stdout, done.Tool, "said:", done.Summary)
		}
		return nil
	})
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return
	}
	fmt.Fprintln(os.Stdout, result.Agent, "said:", messages[0].Text)
	// Output:
	// weather said: Oslo: sunny, 21 °C
	// forecaster said: It is sunny in Oslo.
}
