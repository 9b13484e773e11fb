package hook_test

import (
	"context"
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

// docs/hooks.md quotes the examples of this package.

// assistant returns an agent with the handlers of an example. It has two tools, lookup and delete, and its model follows
// the script.
func assistant(model *scripted.Model, handlers ...hook.Handler) (*agent.Agent, error) {
	lookup, err := tool.Func("lookup", "Looks a word up.", func(ctx context.Context, in struct {
		Word string `json:"word"`
	},
	) (string, error) {
		if in.Word == "xyzzy" {
			return "", fmt.Errorf("no entry for %q", in.Word)
		}
		return "an entry of the dictionary for " + in.Word, nil
	})
	if err != nil {
		return nil, err
	}
	remove, err := tool.Func("delete", "Deletes a word.", func(context.Context, struct{}) (string, error) { return "deleted", nil })
	if err != nil {
		return nil, err
	}
	return agent.New(agent.Config{
		Name: "assistant", Instructions: "Be brief.", Model: model, Tools: []tool.Tool{lookup, remove}, Handlers: handlers,
	})
}

// printTurn runs one turn with the user's text and prints its events. It returns the requests to the model.
func printTurn(text string, handler hook.Handler, script ...scripted.Reply) *scripted.Model {
	return converse(text, []hook.Handler{handler}, script...)
}

func converse(text string, handlers []hook.Handler, script ...scripted.Reply) *scripted.Model {
	model := scripted.New(script...)
	a, err := assistant(model, handlers...)
	if err != nil {
		fmt.Fprintln(os.Stdout, "error:", err)
		return model
	}
	step := execution.Step{Turn: 1, Number: 1, History: []conversation.Message{conversation.User(text)}}
	for e, err := range a.Run(context.Background(), agent.Invocation{Step: step}) {
		switch p := e.Payload.(type) {
		case event.Message:
			for key, value := range p.State {
				fmt.Fprintf(os.Stdout, "state: %s = %s\n", key, value)
			}
			if p.Text != "" {
				fmt.Fprintln(os.Stdout, "message:", p.Text)
			}
		case event.Warning:
			fmt.Fprintln(os.Stdout, "warning:", p.Reason, p.Message)
		case event.Thinking:
			fmt.Fprintln(os.Stdout, "thought:", p.Text)
		case event.TurnResult:
			if err == nil && p.Result.Text != "" {
				fmt.Fprintln(os.Stdout, "answer:", p.Result.Text)
			}
		}
		if err != nil {
			fmt.Fprintln(os.Stdout, "error:", err)
		}
	}
	return model
}

// lookUp returns a reply that looks up each word.
func lookUp(words ...string) scripted.Reply {
	var reply scripted.Reply
	for _, w := range words {
		reply.ToolCalls = append(reply.ToolCalls, conversation.ToolCall{Name: "lookup", Arguments: fmt.Sprintf(`{"word": %q}`, w)})
	}
	return reply
}

// printLastMessage prints the last message that the model read before it answered.
func printLastMessage(model *scripted.Model) string {
	requests := model.Requests()
	messages := requests[len(requests)-1].Messages
	return messages[len(messages)-1].Text
}
