package hook_test

import (
	"context"
	"errors"
	"fmt"
	"os"

	"github.com/troupe-dev/troupe/pkg/agent"
	"github.com/troupe-dev/troupe/pkg/conversation"
	"github.com/troupe-dev/troupe/pkg/event"
	"github.com/troupe-dev/troupe/pkg/execution"
	"github.com/troupe-dev/troupe/pkg/hook"
	"github.com/troupe-dev/troupe/pkg/llm/scripted"
	"github.com/troupe-dev/troupe/pkg/tool"
)

// A plugin is a list of handlers with a name, which the errors of its handlers contain.
func ExamplePlugin() {
	quota := hook.Plugin{
		Name: "quota",
		Handlers: []hook.Handler{hook.BeforeLLM(func(_ context.Context, req *hook.LLMRequest) error {
			return errors.New("no tokens are left") // for the log alone
		})},
	}
	a, err := agent.New(agent.Config{Name: "a", Model: scripted.New(), Plugins: []hook.Plugin{quota}})
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return
	}
	_, err = a.Execute(context.Background(), agent.Invocation{}, func(event.Event) error { return nil })
	fmt.Fprintln(os.Stdout, err)
	// Output:
	// hook.before_llm of plugin quota: agent_logic: the handler before_llm of plugin quota failed and gave no reason; the log of the agent has the error: no tokens are left
}

// NewSet reports invalid handlers at once, and not when they first run.
func ExampleNewSet() {
	_, err := hook.NewSet(nil, []hook.Handler{hook.AfterTools(nil)})
	fmt.Fprintln(os.Stdout, err)
	_, err = hook.NewSet([]hook.Plugin{{Name: "log"}, {Name: "log"}}, nil)
	fmt.Fprintln(os.Stdout, err)
	// Output:
	// hook.NewSet: agent_validation: handlers: handler 1, of after_tools, has no function
	// hook.NewSet: agent_validation: plugins: two are named "log"; name one otherwise, or leave it out
}

// A tool finds its turn through its context. Outside of tools there is none.
func ExampleInTool() {
	whoami, err := tool.Func("whoami", "Tells who is asking.", func(ctx context.Context, _ struct{}) (string, error) {
		running := hook.InTool(ctx)
		return fmt.Sprintf("call %s of agent %s, who is to %q", running.CallID, running.Info.Agent, running.Info.Prompt), nil
	})
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return
	}
	a, err := agent.New(agent.Config{
		Name: "mirror", Tools: []tool.Tool{whoami},
		Model: scripted.New(scripted.Call(conversation.ToolCall{ID: "7", Name: "whoami"}), scripted.Say("Done.")),
	})
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return
	}
	step := execution.Step{Number: 1, History: []conversation.Message{conversation.User("find out")}}
	_, err = a.Execute(context.Background(), agent.Invocation{Step: step}, func(e event.Event) error {
		if p, ok := e.Payload.(event.ToolFinished); ok {
			fmt.Fprintln(os.Stdout, p.Result)
		}
		return nil
	})
	fmt.Fprintln(os.Stdout, hook.InTool(context.Background()), err)
	// Output:
	// call 7 of agent mirror, who is to "find out"
	// no tool is running <nil>
}

// A handler replaces many messages by one, which is all that the model reads.
func ExampleTurn_Replace() {
	compact := hook.AfterTools(func(_ context.Context, round *hook.Round) error {
		return round.Replace([]conversation.Message{{Role: conversation.RoleUser, Author: "compaction", Text: "Two words were looked up."}})
	})
	model := printTurn("Look them up.", compact, lookUp("a", "b"), scripted.Say("I did."))
	fmt.Fprintln(os.Stdout, "the model read", len(model.Requests()[1].Messages), "message:", printLastMessage(model))
	// Output:
	// answer: I did.
	// the model read 1 message: Two words were looked up.
}

// Changes of state are stored with the step. A missing key has an error of its own, and a key of another tier cannot be
// set.
func ExampleMemory() {
	count := hook.AfterUserInput(func(ctx context.Context, turn *hook.Turn) error {
		var visits int
		if err := turn.Memory().Read(ctx, "user:visits", &visits); err != nil && !errors.Is(err, hook.ErrNoKey) {
			return err
		}
		fmt.Fprintln(os.Stdout, turn.Memory().Set("trace_id", "mine"))
		return turn.Memory().Set("user:visits", visits+1)
	})
	printTurn("Hello.", count, scripted.Say("Hello!"))
	// Output:
	// hook.Memory: state_violation: state "trace_id" is owned by orchestrator, but assistant attempted to modify it
	// state: user:visits = 1
	// answer: Hello!
}

// The state of the agent is in RAM while the agent runs. All its turns share it.
func ExampleTurn_State() {
	once := hook.BeforeAgent(func(_ context.Context, turn *hook.Turn) (string, error) {
		if _, known := turn.State().Get("_greeted"); known {
			return "We have met.", nil
		}
		return "", turn.State().Set("_greeted", true)
	})
	a, err := assistant(scripted.New(scripted.Say("Nice to meet you.")), once)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return
	}
	for range 2 {
		done, err := a.Execute(context.Background(), agent.Invocation{}, func(event.Event) error { return nil })
		fmt.Fprintln(os.Stdout, done.Result.Text, err)
	}
	// Output:
	// Nice to meet you. <nil>
	// We have met. <nil>
}
