// Package scriptedagent is the agent of the chaos suite and of the simulation. Its model and its tools post every
// call to a ledger. A step has four model calls, with a tool of each effect class between them. Its answer names the
// receipts of the tools.
package scriptedagent

import (
	"context"
	"time"

	"github.com/troupe-dev/troupe/pkg/agent"
	"github.com/troupe-dev/troupe/pkg/execution"
	"github.com/troupe-dev/troupe/pkg/tool"
	"github.com/troupe-dev/troupe/test/chaos/ledger"
)

// Name is the name of the agent.
const Name = "chaos"

// Ledger receives every call of the agent before the call returns.
type Ledger interface {
	// Post records a call and returns its receipt.
	Post(ctx context.Context, call ledger.Call) (receipt string, err error)
}

// New returns the agent.
func New(client Ledger) (*agent.Agent, error) {
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
		Name: Name, Description: "Tells the ledger of all that it does.",
		Model: model{client}, Tools: tools, Capacity: 64, Timeout: time.Minute,
	})
}

// arguments are the arguments of every tool. They depend only on the request and the step, so that a repeated
// model call produces the same ones.
type arguments struct {
	Mark string `json:"mark"`
	Step int    `json:"step"`
}
