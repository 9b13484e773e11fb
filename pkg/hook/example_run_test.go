package hook_test

import (
	"context"
	"fmt"
	"os"
	"strings"

	"github.com/troupe-dev/troupe/pkg/event"
	"github.com/troupe-dev/troupe/pkg/failure"
	"github.com/troupe-dev/troupe/pkg/hook"
	"github.com/troupe-dev/troupe/pkg/llm/scripted"
)

func ExampleOnUserMessage() {
	private := hook.OnUserMessage(func(_ context.Context, turn *hook.Turn) (string, error) {
		return strings.ReplaceAll(turn.Info().Prompt, "4711", "[number]"), nil
	})
	model := printTurn("My card is 4711.", private, scripted.Say("Thank you."))
	fmt.Fprintln(os.Stdout, "the model read:", printLastMessage(model))
	// Output:
	// answer: Thank you.
	// the model read: My card is [number].
}

func ExampleBeforeRun() {
	open := hook.BeforeRun(func(_ context.Context, turn *hook.Turn) (string, error) {
		if turn.Info().User == "" {
			return "Please sign in first.", nil
		}
		return "", nil
	})
	printTurn("Show my orders.", open)
	// Output:
	// message: Please sign in first.
	// answer: Please sign in first.
}

func ExampleAfterRun() {
	audit := hook.AfterRun(func(_ context.Context, done *hook.Completion) error {
		fmt.Fprintf(os.Stdout, "%q ended: %s, error %v\n", done.Info().Prompt, done.Reason, done.Err != nil)
		return nil
	})
	printTurn("Hello.", audit, scripted.Say("Hello!"))
	printTurn("Hello.", audit, scripted.Fail(failure.New(failure.ResourceAPI, "example", "The model is down.")))
	// Output:
	// "Hello." ended: natural, error false
	// answer: Hello!
	// "Hello." ended: error, error true
	// error: example: resource_api: The model is down.
}

func ExampleOnEvent() {
	masked := hook.OnEvent(func(_ context.Context, turn *hook.Turn, e event.Event) (event.Payload, error) {
		switch p := e.Payload.(type) {
		case event.Warning:
			p.Message = strings.ReplaceAll(p.Message, "4711", "[number]")
			return p, nil
		default:
			return nil, nil // as it is
		}
	})
	careful := hook.AfterUserInput(func(_ context.Context, turn *hook.Turn) error {
		turn.Warn("CARD", "the user has sent card 4711")
		return nil
	})
	converse("My card is 4711.", []hook.Handler{masked, careful}, scripted.Say("Thank you."))
	// Output:
	// warning: CARD the user has sent card [number]
	// answer: Thank you.
}
