// Package helper is an agent of the simulation for what the scripted agent does not do. The message of the user says
// what it does:
//
//	say WORD  answers at once
//	pay KEY   calls pay, which needs an approval and may run once
//	fail KEY  as the second step fails the first time, for good, and then answers
package helper

import (
	"context"
	"encoding/json"
	"iter"
	"strconv"
	"strings"
	"time"

	"github.com/troupe-dev/troupe/pkg/agent"
	"github.com/troupe-dev/troupe/pkg/conversation"
	"github.com/troupe-dev/troupe/pkg/execution"
	"github.com/troupe-dev/troupe/pkg/failure"
	"github.com/troupe-dev/troupe/pkg/hook"
	"github.com/troupe-dev/troupe/pkg/llm"
	"github.com/troupe-dev/troupe/pkg/plugin/approval"
	"github.com/troupe-dev/troupe/pkg/tool"
	"github.com/troupe-dev/troupe/test/chaos/ledger"
	"github.com/troupe-dev/troupe/test/chaos/scriptedagent"
)

// Name is the name of the agent.
const Name = "helper"

// New returns the agent, whose payments and failures are in the ledger.
func New(l scriptedagent.Ledger) (*agent.Agent, error) {
	pay, err := tool.Func("pay", "Pays something.", func(ctx context.Context, in struct {
		Key string `json:"key"`
	},
	) (string, error) {
		return l.Post(ctx, ledger.Call{Kind: ledger.AtMostOnce, Mark: in.Key, Step: 1, Key: tool.IdempotencyKey(ctx)})
	})
	if err != nil {
		return nil, err
	}
	approvals, err := approval.New(approval.Config{})
	if err != nil {
		return nil, err
	}
	return agent.New(agent.Config{
		Name: Name, Description: "Helps in the simulation.", Model: model{l}, Capacity: 64, Timeout: time.Minute,
		Tools: []tool.Tool{tool.WithEffect(execution.AtMostOnce, pay)}, Plugins: []hook.Plugin{approvals},
	})
}

// model is a script.
type model struct{ ledger scriptedagent.Ledger }

// Name implements llm.Model.
func (model) Name() string { return "simulation/script" }

// Generate implements llm.Model.
func (m model) Generate(ctx context.Context, req llm.Request) iter.Seq2[llm.Delta, error] {
	return func(yield func(llm.Delta, error) bool) {
		var asked string
		var results []string
		step := 1
		for _, said := range req.Messages {
			switch {
			case said.Role == conversation.RoleUser && said.Author == "":
				asked, step, results = said.Text, 1, nil
			case said.Role == conversation.RoleUser: // the result of an earlier step
				step++
			case said.Role == conversation.RoleTool:
				results = append(results, said.Text)
			}
		}
		used := execution.Usage{InputTokens: 1, OutputTokens: 1}
		verb, key, _ := strings.Cut(asked, " ")
		switch {
		case verb == "pay" && len(results) == 0:
			in, _ := json.Marshal(map[string]string{"key": key}) // a plain field
			yield(llm.Delta{ToolCalls: []conversation.ToolCall{{ID: "call_pay", Name: "pay", Arguments: string(in)}}, Usage: used}, nil)
		case verb == "fail" && step == 2 && m.isFirst(ctx, key):
			yield(llm.Delta{}, failure.New(failure.ResourceAPI, "helper", "it fails the first time"))
		default:
			yield(llm.Delta{Text: asked + ": " + strings.Join(append(results, "done"), ", "), Usage: used}, nil)
		}
	}
}

// isFirst reports whether the model is asked for the key for the first time. The ledger numbers its calls, and gives the
// receipt of the first one to every call with the same key.
func (m model) isFirst(ctx context.Context, key string) bool {
	now, err1 := m.ledger.Post(ctx, ledger.Call{Kind: ledger.Read, Mark: key, Step: 1})
	first, err2 := m.ledger.Post(ctx, ledger.Call{Kind: ledger.Idempotent, Mark: key, Step: 1, Key: key})
	return err1 != nil || err2 != nil || number(first) > number(now)
}

// number returns the number in a receipt.
func number(receipt string) int {
	_, text, _ := strings.Cut(receipt, "#")
	n, _ := strconv.Atoi(text) // the ledger made it
	return n
}
