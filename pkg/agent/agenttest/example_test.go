package agenttest_test

import (
	"context"
	"fmt"
	"os"

	"github.com/troupe-dev/troupe/pkg/agent"
	"github.com/troupe-dev/troupe/pkg/agent/agenttest"
	"github.com/troupe-dev/troupe/pkg/conversation"
	"github.com/troupe-dev/troupe/pkg/hook"
	"github.com/troupe-dev/troupe/pkg/llm/scripted"
	"github.com/troupe-dev/troupe/pkg/plugin/approval"
	"github.com/troupe-dev/troupe/pkg/tool"
)

// forecaster returns the agent under test. It has a weather tool and stores the city in the session's state.
func forecaster(script ...scripted.Reply) *agent.Agent {
	type city struct {
		Name string `json:"name"`
	}
	weather, err := tool.Func("weather", "Tells the weather of a city.", func(ctx context.Context, in city) (string, error) {
		return "sunny", hook.InTool(ctx).Memory().Set("city", in.Name)
	})
	if err != nil {
		return nil
	}
	a, err := agent.New(agent.Config{
		Name: "forecaster", Instructions: "Last city: {city?}", Model: scripted.New(script...), Tools: []tool.Tool{weather},
	})
	if err != nil {
		return nil
	}
	return a
}

// printingT is a T that prints failures.
type printingT struct{}

func (printingT) Helper()                           {}
func (printingT) Context() context.Context          { return context.Background() }
func (printingT) Cleanup(func())                    {}
func (printingT) Fatalf(format string, args ...any) { fmt.Fprintf(os.Stdout, format+"\n", args...) }

// One turn with a scripted model. In a real test, t is the *testing.T.
func ExampleRun() {
	var t printingT
	turn := agenttest.Run(t, forecaster(
		scripted.Call(conversation.ToolCall{Name: "weather", Arguments: `{"name": "Oslo"}`}),
		scripted.Say("No, it is sunny."),
	), "Do I need an umbrella in Oslo?")
	fmt.Fprintln(os.Stdout, turn.Text, turn.Tools, turn.State["city"])
	// Output:
	// No, it is sunny. [weather] Oslo
}

// Several turns of one session. Each turn sees the state that earlier turns changed.
func ExampleSession_Say() {
	var t printingT
	s := agenttest.NewSession(t, forecaster(
		scripted.Say("Where?"),
		scripted.Call(conversation.ToolCall{Name: "weather", Arguments: `{"name": "Bergen"}`}),
		scripted.Say("Yes."),
	))
	s.Set("city", "Oslo")
	s.Say("Do I need an umbrella?")
	turn := s.Say("In Bergen.")
	fmt.Fprintln(os.Stdout, len(s.History()), "messages, city", turn.State["city"])
	fmt.Fprintln(os.Stdout, turn.Kinds())
	// Output:
	// 4 messages, city Bergen
	// [user_input llm_call tool_call tool_execution message llm_call assistant turn_result]
}

// clerk returns an agent that sends mail after a person has approved it.
func clerk(script ...scripted.Reply) *agent.Agent {
	guard, err := approval.New(approval.Config{})
	if err != nil {
		return nil
	}
	send, err := tool.Func("send_mail", "Sends a mail.", func(context.Context, struct{}) (string, error) { return "sent", nil })
	if err != nil {
		return nil
	}
	a, err := agent.New(agent.Config{Name: "clerk", Model: scripted.New(script...), Tools: []tool.Tool{send}, Plugins: []hook.Plugin{guard}})
	if err != nil {
		return nil
	}
	return a
}

// A turn waits for an approval, and the next one continues with the answer.
func ExampleSession_Approve() {
	var t printingT
	s := agenttest.NewSession(t, clerk(
		scripted.Call(conversation.ToolCall{Name: "send_mail"}, conversation.ToolCall{Name: "send_mail"}),
		scripted.Say("Sent one."),
	))
	turn := s.Say("Write to Ann and Bob.")
	fmt.Fprintln(os.Stdout, turn.Text, turn.Pending[0].Reason)
	turn = s.Approve()
	fmt.Fprintln(os.Stdout, turn.Text, turn.Tools)
	turn = s.Deny("not to Bob")
	fmt.Fprintln(os.Stdout, turn.Text, turn.Tools)
	// Output:
	// send_mail waits for an approval. The agent clerk wants to run send_mail: Sends a mail.
	// send_mail waits for an approval. [send_mail]
	// Sent one. [send_mail send_mail]
}

// A turn that fails, and a turn with a changed invocation.
func ExampleSession_Try() {
	var t printingT
	s := agenttest.NewSession(t, forecaster(scripted.Call(conversation.ToolCall{Name: "weather", Arguments: `{"name": "Oslo"}`})))
	turn := s.Try("Do I need an umbrella?", func(inv *agent.Invocation) { inv.MaxIterations = 1 })
	fmt.Fprintln(os.Stdout, turn.Result.Reason, turn.Warnings[0].Message)
	turn = s.Try("Do I need an umbrella?")
	fmt.Fprintln(os.Stdout, turn.Result.Reason, turn.Err)
	// Output:
	// max_iterations Task incomplete: Maximum iterations (1) reached.
	// error scripted.Generate: resource_api: the script ended before request 2
}
