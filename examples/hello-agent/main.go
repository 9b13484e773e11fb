// Command hello-agent is a complete agent in Go: one function as its tool, and a main that
// serves it to a mesh. It needs no API key, because its model only quotes the tool.
//
// Start a mesh with `troupe dev`. It prints the command that runs this agent, with the
// address of the mesh and the credentials of the worker:
//
//	env $(cat .troupe/mesh.env) go run ./examples/hello-agent --grpc-addr 127.0.0.1:0 --http-addr 127.0.0.1:0
//
// Then ask it: troupe ask --target hello "How do I say hello in Norwegian?"
package main

import (
	"cmp"
	"context"
	"os"

	"github.com/troupe-dev/troupe/pkg/agent"
	"github.com/troupe-dev/troupe/pkg/execution"
	"github.com/troupe-dev/troupe/pkg/llm/extractive"
	"github.com/troupe-dev/troupe/pkg/tool"
	"github.com/troupe-dev/troupe/pkg/worker"
)

type language struct {
	Query string `json:"query" jsonschema:"name of the language"`
}

func greet(_ context.Context, in language) (string, error) {
	words := map[string]string{"Norwegian": "hei", "French": "bonjour", "Swahili": "jambo"}
	return "In " + in.Query + " one says " + cmp.Or(words[in.Query], "what I have yet to learn") + ".", nil
}

func main() {
	greeting, err := tool.Func("greeting", "Tells the word for hello in a language.", greet)
	if err != nil {
		os.Exit(worker.Main(nil, err))
	}
	os.Exit(worker.Main(agent.New(agent.Config{Name: "hello", Model: extractive.New(), Tools: []tool.Tool{tool.WithEffect(execution.Read, greeting)}})))
}
