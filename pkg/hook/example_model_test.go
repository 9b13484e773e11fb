package hook_test

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/troupe-dev/troupe/pkg/conversation"
	"github.com/troupe-dev/troupe/pkg/failure"
	"github.com/troupe-dev/troupe/pkg/hook"
	"github.com/troupe-dev/troupe/pkg/llm"
	"github.com/troupe-dev/troupe/pkg/llm/scripted"
)

func ExampleBeforeLLM() {
	careful := hook.BeforeLLM(func(_ context.Context, req *hook.LLMRequest) error {
		req.System += " You may not delete anything."
		req.Tools = slices.DeleteFunc(slices.Clone(req.Tools), func(t llm.ToolSpec) bool { return t.Name == "delete" })
		return nil
	})
	model := printTurn("Tidy up.", careful, scripted.Say("I only look."))
	asked := model.Requests()[0]
	fmt.Fprintf(os.Stdout, "the model read: %s It got %d tool\n", asked.System, len(asked.Tools))
	// Output:
	// answer: I only look.
	// the model read: Be brief. You may not delete anything. It got 1 tool
}

func ExampleAfterLLM() {
	one := hook.AfterLLM(func(_ context.Context, reply *hook.LLMReply) error {
		if len(reply.ToolCalls) > 1 {
			reply.Warn("TOO_MANY_CALLS", fmt.Sprintf("%d tools were asked for, one runs", len(reply.ToolCalls)))
			reply.ToolCalls = reply.ToolCalls[:1]
		}
		return nil
	})
	model := printTurn("Look it up.", one, lookUp("a", "b", "c"), scripted.Say("An entry."))
	fmt.Fprintln(os.Stdout, "the model read:", printLastMessage(model))
	// Output:
	// warning: TOO_MANY_CALLS 3 tools were asked for, one runs
	// answer: An entry.
	// the model read: an entry of the dictionary for a
}

func ExampleOnLLMError() {
	fallback := hook.OnLLMError(func(_ context.Context, failed *hook.LLMFailure) error {
		if failure.Is(failed.Err, failure.ResourceAPI) {
			failed.Respond("I cannot think right now. Please try again later.")
		}
		return nil
	})
	printTurn("Hello.", fallback, scripted.Fail(failure.New(failure.ResourceAPI, "model", "down")))
	// Output:
	// answer: I cannot think right now. Please try again later.
}

func ExampleBeforeTools() {
	announce := hook.BeforeTools(func(_ context.Context, round *hook.Round) error {
		var names []string
		for _, call := range round.Calls {
			names = append(names, call.Name)
		}
		round.Warn("TOOLS", "about to run "+strings.Join(names, ", "))
		return nil
	})
	printTurn("Look it up.", announce, lookUp("a", "b"), scripted.Say("Two entries."))
	// Output:
	// warning: TOOLS about to run lookup, lookup
	// answer: Two entries.
}

func ExampleBeforeEachTool() {
	locked := hook.BeforeEachTool(func(_ context.Context, call *hook.Call) error {
		if call.Name == "delete" {
			call.Reject("Nothing is deleted on a Friday.")
		}
		return nil
	})
	model := printTurn("Delete it.", locked, scripted.Call(conversation.ToolCall{Name: "delete"}), scripted.Say("I may not."))
	fmt.Fprintln(os.Stdout, "the model read:", printLastMessage(model))
	// Output:
	// answer: I may not.
	// the model read: Nothing is deleted on a Friday.
}

func ExampleAfterEachTool() {
	short := hook.AfterEachTool(func(_ context.Context, call *hook.Call) error {
		call.Text = conversation.Excerpt(call.Text, 20)
		return nil
	})
	model := printTurn("Look it up.", short, lookUp("word"), scripted.Say("An entry."))
	fmt.Fprintln(os.Stdout, "the model read:", printLastMessage(model))
	// Output:
	// answer: An entry.
	// the model read: an entry of the dic…
}

func ExampleOnError() {
	hint := hook.OnError(func(_ context.Context, call *hook.Call) error {
		call.Text += " Check the spelling, or ask the user."
		return nil
	})
	model := printTurn("Look it up.", hint, lookUp("xyzzy"), scripted.Say("How is it spelled?"))
	fmt.Fprintln(os.Stdout, "the model read:", printLastMessage(model))
	// Output:
	// answer: How is it spelled?
	// the model read: Error: no entry for "xyzzy" Check the spelling, or ask the user.
}

func ExampleAfterTools() {
	reflect := hook.AfterTools(func(ctx context.Context, round *hook.Round) error {
		said, err := round.Ask(ctx, llm.Request{System: "Is this enough to answer?", Messages: round.Messages()})
		if err != nil {
			return err
		}
		round.Add(conversation.Message{Role: conversation.RoleUser, Author: "reflection", Text: said.Text})
		return nil
	})
	model := printTurn("Look it up.", reflect, lookUp("a"), scripted.Say("Yes, answer now."), scripted.Say("An entry."))
	fmt.Fprintln(os.Stdout, "the model read:", printLastMessage(model))
	// Output:
	// answer: An entry.
	// the model read: Yes, answer now.
}
