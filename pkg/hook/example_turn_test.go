package hook_test

import (
	"context"
	"fmt"
	"os"
	"strings"

	"github.com/troupe-dev/troupe/pkg/conversation"
	"github.com/troupe-dev/troupe/pkg/event"
	"github.com/troupe-dev/troupe/pkg/hook"
	"github.com/troupe-dev/troupe/pkg/llm/scripted"
)

func ExampleOnAgentReady() {
	ready := hook.OnAgentReady(func(a hook.Agent) error {
		fmt.Fprintf(os.Stdout, "%s is ready, with %s\n", a.Name, strings.Join(a.Tools, " and "))
		return nil
	})
	printTurn("Hello.", ready, scripted.Say("Hello!"))
	// Output:
	// assistant is ready, with lookup and delete
	// answer: Hello!
}

func ExampleBeforeAgent() {
	guard := hook.BeforeAgent(func(_ context.Context, turn *hook.Turn) (string, error) {
		if strings.Contains(turn.Info().Prompt, "password") {
			return "I do not talk about passwords.", nil
		}
		return "", nil
	})
	printTurn("What is the password?", guard)
	// Output:
	// message: I do not talk about passwords.
	// answer: I do not talk about passwords.
}

func ExampleAfterUserInput() {
	dated := hook.AfterUserInput(func(_ context.Context, turn *hook.Turn) error {
		turn.Add(conversation.Message{Role: conversation.RoleUser, Author: "calendar", Text: "Today is a Friday."})
		return nil
	})
	model := printTurn("Which day is it?", dated, scripted.Say("Friday."))
	fmt.Fprintln(os.Stdout, "the model read:", printLastMessage(model))
	// Output:
	// answer: Friday.
	// the model read: Today is a Friday.
}

func ExampleBeforeIteration() {
	bounded := hook.BeforeIteration(func(_ context.Context, turn *hook.Turn) error {
		if len(turn.ToolsCalled()) >= 2 {
			turn.Stop("it has used two tools.")
		}
		return nil
	})
	printTurn("Look around.", bounded, lookUp("a"), lookUp("b"), lookUp("c"))
	// Output:
	// answer: The turn was stopped: it has used two tools.
}

func ExampleAfterIteration() {
	progress := hook.AfterIteration(func(_ context.Context, turn *hook.Turn) error {
		turn.Think(event.Reflection, fmt.Sprintf("iteration %d is done, tools so far: %d", turn.Iteration(), len(turn.ToolsCalled())))
		return nil
	})
	printTurn("Look it up.", progress, lookUp("a", "b"), scripted.Say("Two entries."))
	// Output:
	// thought: iteration 1 is done, tools so far: 2
	// thought: iteration 2 is done, tools so far: 2
	// answer: Two entries.
}

func ExampleOnStopSignal() {
	stop := hook.BeforeTools(func(_ context.Context, round *hook.Round) error { round.Stop("no tools today."); return nil })
	stopped := hook.OnStopSignal(func(_ context.Context, turn *hook.Turn) error {
		turn.Warn("STOPPED_EARLY", fmt.Sprintf("stopped in iteration %d", turn.Iteration()))
		return turn.Memory().Set("unfinished", turn.Info().Prompt)
	})
	converse("Look it up.", []hook.Handler{stop, stopped}, lookUp("a"))
	// Output:
	// warning: STOPPED_EARLY stopped in iteration 1
	// state: unfinished = "Look it up."
	// answer: The turn was stopped: no tools today.
}

func ExampleAfterAgent() {
	sources := hook.AfterAgent(func(_ context.Context, turn *hook.Turn) (string, error) {
		if len(turn.ToolsCalled()) == 0 {
			return "I said this without looking anything up.", nil
		}
		return "", nil
	})
	printTurn("How many words are there?", sources, scripted.Say("Many."))
	// Output:
	// message: I said this without looking anything up.
	// answer: Many.
}

func ExampleOnComplete() {
	account := hook.OnComplete(func(_ context.Context, done *hook.Completion) error {
		fmt.Fprintf(os.Stdout, "%q: %d model calls, tools %v, reason %s\n",
			done.Info().Prompt, done.Usage().ModelCalls, done.ToolsCalled(), done.Reason)
		return nil
	})
	printTurn("Look it up.", account, lookUp("a"), scripted.Say("An entry."))
	// Output:
	// "Look it up.": 2 model calls, tools [lookup], reason natural
	// answer: An entry.
}
