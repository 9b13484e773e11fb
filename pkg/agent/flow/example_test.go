package flow_test

import (
	"context"
	"fmt"
	"os"

	"github.com/troupe-dev/troupe/pkg/agent"
	"github.com/troupe-dev/troupe/pkg/agent/flow"
	"github.com/troupe-dev/troupe/pkg/conversation"
	"github.com/troupe-dev/troupe/pkg/event"
	"github.com/troupe-dev/troupe/pkg/execution"
	"github.com/troupe-dev/troupe/pkg/hook"
	"github.com/troupe-dev/troupe/pkg/llm/scripted"
	"github.com/troupe-dev/troupe/pkg/tool"
)

// scriptedAgent returns an agent whose model replies with the texts in order.
func scriptedAgent(name string, texts []string, handlers ...hook.Handler) (*agent.Agent, error) {
	var script []scripted.Reply
	for _, text := range texts {
		script = append(script, scripted.Say(text))
	}
	return agent.New(agent.Config{Name: name, Model: scripted.New(script...), Handlers: handlers})
}

// printTurn runs an agent for one turn and prints each agent's text after its branch.
func printTurn(a *agent.Agent, text string) {
	step := execution.Step{Number: 1, History: []conversation.Message{conversation.User(text)}}
	for e, err := range a.Run(context.Background(), agent.Invocation{Step: step}) {
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			return
		}
		switch p := e.Payload.(type) {
		case event.TextDelta:
			fmt.Fprintf(os.Stdout, "%s: %s\n", e.Branch, p.Text)
		case event.TurnResult:
			fmt.Fprintf(os.Stdout, "%s answered:\n%s\n", e.Author, p.Result.Text)
		}
	}
}

// A writer followed by an editor.
func ExampleSequence() {
	writer, err := scriptedAgent("writer", []string{"Oslo is a city in Norway."})
	if err != nil {
		return
	}
	editor, err := scriptedAgent("editor", []string{"Oslo is in Norway."})
	if err != nil {
		return
	}
	desk, err := flow.Sequence(agent.Config{Name: "desk"}, writer, editor)
	if err != nil {
		return
	}
	printTurn(desk, "Where is Oslo?")
	// Output:
	// desk.writer: Oslo is a city in Norway.
	// desk.editor: Oslo is in Norway.
	// desk answered:
	// Oslo is in Norway.
}

// A writer and a critic take turns until the critic approves.
func ExampleRepeat() {
	writer, err := scriptedAgent("writer", []string{"Oslo is a big city in Norway.", "Oslo is in Norway."})
	if err != nil {
		return
	}
	critic, err := scriptedAgent("critic", []string{"Shorter.", "Fine."}, hook.AfterLLM(func(_ context.Context, reply *hook.LLMReply) error {
		if reply.Text == "Fine." {
			reply.Escalate()
		}
		return nil
	}))
	if err != nil {
		return
	}
	desk, err := flow.Repeat(agent.Config{Name: "desk"}, 5, writer, critic)
	if err != nil {
		return
	}
	printTurn(desk, "Where is Oslo?")
	// Output:
	// desk.writer: Oslo is a big city in Norway.
	// desk.critic: Shorter.
	// desk.writer: Oslo is in Norway.
	// desk.critic: Fine.
	// desk answered:
	// Fine.
}

// Two agents run at the same time, and the flow joins their answers.
func ExampleParallel() {
	weather, err := scriptedAgent("weather", []string{"Sunny."})
	if err != nil {
		return
	}
	news, err := scriptedAgent("news", []string{"Nothing new."})
	if err != nil {
		return
	}
	morning, err := flow.Parallel(agent.Config{Name: "morning"}, weather, news)
	if err != nil {
		return
	}
	step := execution.Step{Number: 1, History: []conversation.Message{conversation.User("Good morning.")}}
	done, err := morning.Execute(context.Background(), agent.Invocation{Step: step}, func(event.Event) error { return nil })
	if err != nil {
		return
	}
	fmt.Fprintln(os.Stdout, done.Result.Text)
	// Output:
	// weather:
	// Sunny.
	//
	// news:
	// Nothing new.
}

// A model calls another agent like any other tool.
func ExampleAsTool() {
	geographer, err := scriptedAgent("geographer", []string{"Oslo is in Norway."})
	if err != nil {
		return
	}
	ask, err := flow.AsTool(geographer, flow.AsToolConfig{Description: "Knows where places are."})
	if err != nil {
		return
	}
	host, err := agent.New(agent.Config{
		Name: "host", Tools: []tool.Tool{ask},
		Model: scripted.New(
			scripted.Call(conversation.ToolCall{Name: "geographer", Arguments: `{"request": "Where is Oslo?"}`}),
			scripted.Say("Take a flight to Norway."),
		),
	})
	if err != nil {
		return
	}
	printTurn(host, "How do I get to Oslo?")
	// Output:
	// : Take a flight to Norway.
	// host answered:
	// Take a flight to Norway.
}
