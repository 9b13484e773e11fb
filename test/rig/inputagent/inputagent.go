// Package inputagent provides an agent whose tools need external input: one needs an approval, one runs at the
// client, and one needs a credential.
package inputagent

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

// The names of the agent. Under the name ShortTimeoutName, its approvals time out after 100 ms.
const (
	Name             = "clerk"
	ShortTimeoutName = "hurried"
)

// Credential is the name of the credential that the tool fetch needs.
const Credential = "mailbox"

// New returns the agent of an instance, which calls the gate at the URL. The message of the user says which
// tools it calls before it repeats their results:
//
//	send KEY   send, which needs an approval, waits at the gate, and may run once
//	look KEY   screen, which runs at the client
//	both KEY   send and screen, in one round
//	fetch KEY  fetch, which needs the credential Credential, sends it to the gate, and waits there
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
	if name == ShortTimeoutName {
		config.Timeout = 100 * time.Millisecond
	}
	approvals, err := approval.New(config)
	if err != nil {
		return nil, err
	}
	return agent.New(agent.Config{
		Name: name, Description: "Acts after external input.", Timeout: 2 * time.Minute, Model: model{c},
		Tools: []tool.Tool{tool.WithEffect(execution.AtMostOnce, send), screen, fetch}, Plugins: []hook.Plugin{approvals},
	})
}

// caller calls the gate.
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

// client keeps no idle connection.
var client = &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}

// model calls the tools, and then repeats their results.
type model struct{ caller }

// Name implements llm.Model.
func (model) Name() string { return "test/clerk" }

// Generate implements llm.Model.
func (m model) Generate(ctx context.Context, req llm.Request) iter.Seq2[llm.Delta, error] {
	return func(yield func(llm.Delta, error) bool) {
		if texts := lastToolResults(req.Messages); len(texts) > 0 {
			yield(llm.Delta{Text: "I was told: " + strings.Join(texts, "; ")}, nil)
			return
		}
		verb, key := lastUserRequest(req.Messages)
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

// lastToolResults returns the results of the last tool round (nil if another message follows them).
func lastToolResults(messages []conversation.Message) (texts []string) {
	for _, m := range slices.Backward(messages) {
		if m.Role != conversation.RoleTool {
			break
		}
		texts = append(texts, m.Text)
	}
	slices.Reverse(texts)
	return texts
}

// lastUserRequest returns what the user's last message asks for.
func lastUserRequest(messages []conversation.Message) (verb, key string) {
	for _, m := range slices.Backward(messages) {
		if m.Role == conversation.RoleUser && m.Author == "" { // messages of earlier agents have an author
			verb, key, _ = strings.Cut(m.Text, " ")
			return verb, key
		}
	}
	return "", ""
}
