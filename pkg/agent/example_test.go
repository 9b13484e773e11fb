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

// City is the argument of the tool; its JSON Schema is inferred.
type City struct {
	Name string `json:"name" jsonschema:"name of the city"`
}

// An agent with a typed Go function as a tool. The model is scripted here; package llm has the contract of real
// models.
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
	for e, err := range forecaster.Run(context.Background(), agent.Invocation{Step: step}) {
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			return
		}
		switch p := e.Payload.(type) {
		case event.ToolFinished:
			fmt.Fprintln(os.Stdout, p.Tool, "said:", p.Summary)
		case event.TurnResult:
			fmt.Fprintln(os.Stdout, e.Author, "said:", p.Result.Text)
		}
	}
	// Output:
	// weather said: Oslo: sunny, 21 °C
	// forecaster said: It is sunny in Oslo.
}
