package tool_test

import (
	"context"
	"encoding/json"
	"fmt"
	"os"

	"github.com/troupe-dev/troupe/pkg/execution"
	"github.com/troupe-dev/troupe/pkg/tool"
)

// Route holds the arguments of the tool: To is required, From is optional.
type Route struct {
	From string `json:"from,omitempty" jsonschema:"where it begins; left out: here"`
	To   string `json:"to" jsonschema:"where it ends"`
}

func distance(_ context.Context, r Route) (string, error) { return "500 km to " + r.To, nil }

// call runs a tool and prints the text that a model would read.
func call(ctx context.Context, t tool.Tool, arguments string) {
	result, err := t.Call(ctx, json.RawMessage(arguments))
	if err != nil {
		fmt.Fprintln(os.Stdout, "error:", err)
		return
	}
	fmt.Fprintln(os.Stdout, result.Text)
}

// A Go function with typed arguments. Arguments that do not fit never reach it.
func ExampleFunc() {
	far, err := tool.Func("distance", "Tells how far it is.", distance)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return
	}
	call(context.Background(), far, `{"to": "Oslo"}`)
	call(context.Background(), far, `{"from": "Bergen"}`)
	// Output:
	// 500 km to Oslo
	// error: tool.Call: agent_validation: the arguments of distance do not fit: validating root: required: missing properties: ["to"] (required: to; all: from, to; provided: from)
}

// A function may return any value: the model reads it as JSON.
func ExampleFunc_json() {
	type weather struct {
		Sky     string  `json:"sky"`
		Celsius float64 `json:"celsius"`
	}
	now, err := tool.Func("weather", "Tells the weather.",
		func(context.Context, struct{}) (weather, error) { return weather{"sunny", 21}, nil })
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return
	}
	call(context.Background(), now, `{}`)
	// Output:
	// {"sky":"sunny","celsius":21}
}

// A tool that only reads may run again if its worker is lost. A tool without a declared effect runs at most once.
func ExampleWithEffect() {
	far, err := tool.Func("distance", "Tells how far it is.", distance)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return
	}
	fmt.Fprintln(os.Stdout, tool.EffectOf(far))
	fmt.Fprintln(os.Stdout, tool.EffectOf(tool.WithEffect(execution.Read, far)))
	// Output:
	// at_most_once
	// read
}

// An idempotent tool passes its key to the system that it calls, so that a repeated call does its work once.
func ExampleIdempotencyKey() {
	pay, err := tool.Func("pay", "Pays.", func(ctx context.Context, _ struct{}) (string, error) {
		return "paid under " + tool.IdempotencyKey(ctx), nil
	})
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return
	}
	pay = tool.WithEffect(execution.Idempotent, pay)
	call(tool.ContextWithIdempotencyKey(context.Background(), "turn-1/2"), pay, `{}`) // the loop does so
	// Output:
	// paid under turn-1/2
}

// A tool that needs the user ends the turn with a question.
func ExampleAskUser() {
	send, err := tool.Func("send", "Sends a letter.", func(context.Context, struct{}) (string, error) {
		return "", tool.AskUser("To which address?")
	})
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return
	}
	_, err = send.Call(context.Background(), nil)
	if question, asks := tool.Question(err); asks {
		fmt.Fprintln(os.Stdout, question)
	}
	// Output:
	// To which address?
}

// The tools of an agent, by name and in order.
func ExampleNewSet() {
	far, err := tool.Func("distance", "Tells how far it is.", distance)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return
	}
	tools, err := tool.NewSet(far)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return
	}
	_, found := tools.Find("distance")
	fmt.Fprintln(os.Stdout, tools.Names(), found)
	_, err = tool.NewSet(far, far)
	fmt.Fprintln(os.Stdout, err)
	// Output:
	// [distance] true
	// tool.NewSet: agent_validation: two tools are named "distance": rename one
}
