// Package clerk is an agent whose tools need external input: one needs an approval, another a
// client that runs it, and a third a credential.
package clerk

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"iter"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/troupe-dev/troupe/pkg/agent"
	"github.com/troupe-dev/troupe/pkg/conversation"
	"github.com/troupe-dev/troupe/pkg/execution"
	"github.com/troupe-dev/troupe/pkg/hook"
	"github.com/troupe-dev/troupe/pkg/llm"
	"github.com/troupe-dev/troupe/pkg/plugin/approval"
	"github.com/troupe-dev/troupe/pkg/tool"
)

// The names of the agent; Hurried is the one whose approvals have no time.
const (
	Name    = "clerk"
	Hurried = "hurried"
)

// Credential is the name of that which the tool fetch needs.
const Credential = "mailbox"

// New returns the agent of an instance, which asks the gate at the URL.
//
// To "send <key>" it calls the tool send, which needs an approval, waits at the gate for the
// key and may run once; to "look <key>" the tool screen, which its client has; to "both <key>"
// one after the other in one round; to "fetch <key>" the tool fetch, which does as send does with
// the credential Credential, and shows it to the gate. Then it says what came of them.
func New(name, gate, instance string) (*agent.Agent, error) {
	c := caller{gate, instance}
	send, err := tool.Func("send", "Sends something.", func(ctx context.Context, in struct {
		Key string `json:"key"`
	},
	) (string, error) {
		return "sent", c.call(ctx, "hold", in.Key)
	})
	if err != nil {
		return nil, err
	}
	screen, err := tool.Client("screen", "Looks at the screen of the user.", json.RawMessage(`{"type":"object"}`))
	if err != nil {
		return nil, err
	}
	fetch, err := tool.Func("fetch", "Fetches something.", func(ctx context.Context, in struct {
		Key string `json:"key"`
	},
	) (string, error) {
		return "fetched", c.call(ctx, "hold", in.Key)
	})
	if err != nil {
		return nil, err
	}
	fetch = tool.WithLogin(execution.Login{Name: Credential, Prompt: "The password of your mailbox.", URL: "https://mail.example.org/passwords"}, fetch)
	config := approval.Config{Never: []string{"screen", "fetch"}}
	if name == Hurried {
		config.Timeout = 100 * time.Millisecond
	}
	asks, err := approval.New(config)
	if err != nil {
		return nil, err
	}
	return agent.New(agent.Config{
		Name: name, Description: "Acts when it may.", Timeout: 2 * time.Minute, Model: model{c},
		Tools: []tool.Tool{tool.With(execution.AtMostOnce, send), screen, fetch}, Plugins: []hook.Plugin{asks},
	})
}

// caller calls at the gate.
type caller struct{ gate, instance string }

func (c caller) call(ctx context.Context, what, key string) error {
	query := url.Values{"key": {key}, "instance": {c.instance}}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, c.gate+"/"+what+"?"+query.Encode(), http.NoBody)
	if err != nil {
		return err
	}
	if v, ok := execution.Credential(ctx, Credential); ok {
		req.SetBasicAuth("", v.Reveal())
	}
	resp, err := client.Do(req)
	if err != nil {
		return err
	}
	defer func() { _ = resp.Body.Close() }()
	_, err = io.Copy(io.Discard, resp.Body)
	return err
}

// client keeps no connection.
var client = &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}

// model calls the tools, and then says what it was told.
type model struct{ caller }

// Name implements llm.Model.
func (model) Name() string { return "test/clerk" }

// Generate implements llm.Model.
func (m model) Generate(ctx context.Context, req llm.Request) iter.Seq2[llm.Delta, error] {
	return func(yield func(llm.Delta, error) bool) {
		if told := results(req.Messages); len(told) > 0 {
			yield(llm.Delta{Text: "I was told: " + strings.Join(told, "; ")}, nil)
			return
		}
		verb, key := asked(req.Messages)
		if err := m.call(ctx, "model", key); err != nil {
			yield(llm.Delta{}, err)
			return
		}
		call := func(name string) conversation.ToolCall {
			return conversation.ToolCall{ID: name + "-1", Name: name, Arguments: fmt.Sprintf(`{"key":%q}`, key)}
		}
		switch verb {
		case "send":
			yield(llm.Delta{ToolCalls: []conversation.ToolCall{call("send")}}, nil)
		case "look":
			yield(llm.Delta{ToolCalls: []conversation.ToolCall{call("screen")}}, nil)
		case "fetch":
			yield(llm.Delta{ToolCalls: []conversation.ToolCall{call("fetch")}}, nil)
		case "both":
			yield(llm.Delta{ToolCalls: []conversation.ToolCall{call("send"), call("screen")}}, nil)
		default:
			yield(llm.Delta{Text: "I do nothing."}, nil)
		}
	}
}

// results are those of the last round of tools; none when it is not the last that happened.
func results(messages []conversation.Message) (told []string) {
	for _, m := range slices.Backward(messages) {
		if m.Role != conversation.RoleTool {
			break
		}
		told = append(told, m.Text)
	}
	slices.Reverse(told)
	return told
}

// asked is what the user said last.
func asked(messages []conversation.Message) (verb, key string) {
	for _, m := range slices.Backward(messages) {
		if m.Role == conversation.RoleUser && m.Author == "" { // what agents before this one found has one
			verb, key, _ = strings.Cut(m.Text, " ")
			return verb, key
		}
	}
	return "", ""
}
