// Command worker is the worker of the chaos suite: an SDK agent whose model and tools post every call to the
// ledger. A step has four model calls, with a tool of each effect class between them; its answer names the
// receipts of the tools.
package main

import (
	"context"
	"os"
	"time"

	"github.com/troupe-dev/troupe/pkg/agent"
	"github.com/troupe-dev/troupe/pkg/execution"
	"github.com/troupe-dev/troupe/pkg/tool"
	"github.com/troupe-dev/troupe/pkg/worker"
	"github.com/troupe-dev/troupe/test/chaos/ledger"
)

// Agent is the name of the agent.
const Agent = "chaos"

func main() {
	client := ledger.Client{URL: os.Getenv("CHAOS_LEDGER"), Worker: os.Getenv("TROUPE_INSTANCE_ID")}
	os.Exit(worker.Main(build(client)))
}

func build(client ledger.Client) (*agent.Agent, error) {
	effects := map[ledger.Kind]execution.Effect{
		ledger.Read: execution.Read, ledger.Idempotent: execution.Idempotent, ledger.AtMostOnce: execution.AtMostOnce,
	}
	var tools []tool.Tool
	for _, kind := range ledger.Tools {
		made, err := tool.Func(string(kind), "Tells the ledger.", func(ctx context.Context, in arguments) (string, error) {
			return client.Post(ctx, ledger.Call{Kind: kind, Mark: in.Mark, Step: in.Step, Key: tool.IdempotencyKey(ctx)})
		})
		if err != nil {
			return nil, err
		}
		tools = append(tools, tool.WithEffect(effects[kind], made))
	}
	return agent.New(agent.Config{
		Name: Agent, Description: "Tells the ledger of all that it does.",
		Model: model{client}, Tools: tools, Capacity: 64, Timeout: time.Minute,
	})
}

// arguments are the arguments of every tool. They depend only on the request and the step, so that a repeated
// model call produces the same ones.
type arguments struct {
	Mark string `json:"mark"`
	Step int    `json:"step"`
}
