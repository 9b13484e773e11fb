package agent_test

import (
	"context"
	"fmt"
	"iter"
	"os"

	"github.com/troupe-dev/troupe/pkg/agent"
	"github.com/troupe-dev/troupe/pkg/conversation"
	"github.com/troupe-dev/troupe/pkg/event"
	"github.com/troupe-dev/troupe/pkg/execution"
	"github.com/troupe-dev/troupe/pkg/llm/scripted"
)

// New reports all errors of an invalid Config at once.
func ExampleNew() {
	_, err := agent.New(agent.Config{Name: "Fore Caster", Capacity: -1})
	fmt.Fprintln(os.Stdout, err)
	// Output:
	// agent.New: agent_validation: agent "Fore Caster" is not valid: Name "Fore Caster": use a-z, 0-9 and hyphens, at most 63 characters, no hyphen at the ends; Model is missing; Capacity -1: use 1 to 10000
}

// An agent does not need a model: Run is any function that yields events.
func ExampleNew_function() {
	echo, err := agent.New(agent.Config{
		Name: "echo",
		Run: func(_ context.Context, inv agent.Invocation) iter.Seq2[event.Event, error] {
			return func(yield func(event.Event, error) bool) {
				last := inv.Step.History[len(inv.Step.History)-1]
				yield(event.Event{Payload: event.Message{Text: "You said: " + last.Text}}, nil)
			}
		},
	})
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return
	}
	done, err := echo.Execute(context.Background(), agent.Invocation{
		Step: execution.Step{Number: 1, History: []conversation.Message{conversation.User("Hello.")}},
	}, func(event.Event) error { return nil })
	fmt.Fprintln(os.Stdout, done.Result.Text, err)
	// Output:
	// You said: Hello. <nil>
}

// Execute runs a step and returns its result.
func ExampleAgent_Execute() {
	greeter, err := agent.New(agent.Config{Name: "greeter", Model: scripted.New(scripted.Say("Hello!"))})
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return
	}
	inv := agent.Invocation{Step: execution.Step{Number: 1, Turn: 1, History: []conversation.Message{conversation.User("Hi.")}}}
	done, err := greeter.Execute(context.Background(), inv, func(e event.Event) error {
		fmt.Fprintln(os.Stdout, e.Sequence, e.Author, e.Kind())
		return nil
	})
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return
	}
	fmt.Fprintln(os.Stdout, done.Reason, "after", done.Result.Iterations, "iteration:", done.Result.Text)
	// Output:
	// 1 user user_input
	// 2 greeter text_delta
	// 3 greeter llm_call
	// 4 greeter internal:appended
	// 5 greeter assistant
	// natural after 1 iteration: Hello!
}
