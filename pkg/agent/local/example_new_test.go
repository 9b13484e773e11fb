package local_test

import (
	"context"
	"fmt"
	"log"

	"github.com/troupe-dev/troupe/pkg/agent"
	"github.com/troupe-dev/troupe/pkg/agent/local"
	"github.com/troupe-dev/troupe/pkg/llm/extractive"
	"github.com/troupe-dev/troupe/pkg/tool"
)

type words struct {
	Query string `json:"query" jsonschema:"what to look up"`
}

func lookUp(_ context.Context, _ words) (string, error) {
	return "Hello in Norwegian is hei. Hello in French is bonjour.", nil
}

// An agent with a tool of its own, in a program of your own.
func ExampleNew() {
	dictionary, err := tool.Func("dictionary", "Looks up words.", lookUp)
	if err != nil {
		log.Fatal(err)
	}
	s, err := local.New(context.Background(), agent.Config{Name: "translator", Model: extractive.New(), Tools: []tool.Tool{dictionary}})
	if err != nil {
		log.Fatal(err)
	}
	answer, err := s.Ask(context.Background(), "How do I say hello in Norwegian?")
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(answer)
	// Output:
	// On “How do I say hello in Norwegian?” the documents say:
	//
	// - “Hello in Norwegian is hei.”
	//
	// (builtin/extractive: quoted from the documents, no language model involved)
}
