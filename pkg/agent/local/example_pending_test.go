package local_test

import (
	"context"
	"fmt"
	"os"
	"time"

	"github.com/troupe-dev/troupe/pkg/agent"
	"github.com/troupe-dev/troupe/pkg/agent/local"
	"github.com/troupe-dev/troupe/pkg/conversation"
	"github.com/troupe-dev/troupe/pkg/execution"
	"github.com/troupe-dev/troupe/pkg/hook"
	"github.com/troupe-dev/troupe/pkg/llm/scripted"
	"github.com/troupe-dev/troupe/pkg/memory/inmem"
	"github.com/troupe-dev/troupe/pkg/tool"
)

// A tool that needs an approval. The turn ends when the tool is called. The turn with the answer continues it,
// even days later in another process that opens the session.
func ExampleSession_Pending() {
	ctx := context.Background()
	type mail struct {
		To string `json:"to"`
	}
	send, err := tool.Func("send_mail", "Sends a mail.", func(_ context.Context, m mail) (string, error) { return "sent to " + m.To, nil })
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return
	}
	clerk, err := agent.New(agent.Config{
		Name:  "clerk",
		Model: scripted.New(scripted.Call(conversation.ToolCall{Name: "send_mail", Arguments: `{"to": "ann"}`}), scripted.Say("Ann has it.")),
		Tools: []tool.Tool{send},
		Handlers: []hook.Handler{hook.BeforeEachTool(func(_ context.Context, c *hook.Call) error {
			c.Wait("Mails cannot be taken back.", time.Time{})
			return nil
		})},
	})
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return
	}
	s, err := local.Open(ctx, clerk, local.Config{Store: inmem.New(inmem.Config{})})
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return
	}
	defer s.Close(ctx)

	done, err := s.Execute(ctx, local.Input{Text: "Tell Ann."}, nil)
	fmt.Fprintln(os.Stdout, done.Result.Text, err)
	var answers []execution.Answer
	for _, p := range s.Pending() {
		fmt.Fprintln(os.Stdout, p.Tool, p.Arguments, p.Reason)
		answers = append(answers, execution.Answer{ID: p.ID, Verdict: execution.Approve})
	}
	done, err = s.Execute(ctx, local.Input{Answers: answers}, nil)
	fmt.Fprintln(os.Stdout, done.Result.Text, err)
	// Output:
	// send_mail waits for an approval. <nil>
	// send_mail {"to": "ann"} Mails cannot be taken back.
	// Ann has it. <nil>
}
