// Package slow provides an agent that a test can stop in the middle of a step: its tool waits at a gate until
// the test opens it.
package slow

import (
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"net/http"
	"net/url"
	"strings"
	"time"

	"google.golang.org/grpc/metadata"

	"github.com/troupe-dev/troupe/internal/turnctx"
	"github.com/troupe-dev/troupe/pkg/agent"
	"github.com/troupe-dev/troupe/pkg/conversation"
	"github.com/troupe-dev/troupe/pkg/execution"
	"github.com/troupe-dev/troupe/pkg/failure"
	"github.com/troupe-dev/troupe/pkg/llm"
	"github.com/troupe-dev/troupe/pkg/tool"
)

// Name is the name of the agent.
const Name = "slow"

// New returns the agent of an instance, which calls the gate at the URL. The message of the user says what
// it does:
//
//	hold KEY   a tool waits at the gate
//	tell KEY   the same after a very long text
//	fail KEY   the model fails, with its credentials in the error
//	break KEY  a tool that may run once notes the key; then the step fails until the key is repaired at
//	           the gate, and waits there
//	panic KEY  a tool panics with its credentials, and so does the model when it reads of that
//
// The model and the tools send the gate the credential named "gate", and the credential of the turn.
func New(gate, instance string) (*agent.Agent, error) {
	a := caller{gate, instance}
	hold, err := tool.Func("hold", "Waits at the gate.", func(ctx context.Context, in struct {
		Key string `json:"key"`
	},
	) (string, error) {
		return "open", a.call(ctx, "hold", in.Key)
	})
	if err != nil {
		return nil, err
	}
	note, err := tool.Func("note", "Notes the key at the gate.", func(ctx context.Context, in struct {
		Key string `json:"key"`
	},
	) (string, error) {
		return "noted", a.call(ctx, "note", in.Key)
	})
	if err != nil {
		return nil, err
	}
	panics, err := tool.Func("panics", "Panics.", func(ctx context.Context, in struct {
		Key string `json:"key"`
	},
	) (string, error) {
		return "", errors.Join(a.call(ctx, "panic", in.Key), panicWithCredentials(ctx))
	})
	if err != nil {
		return nil, err
	}
	return agent.New(agent.Config{
		Name: Name, Description: "Waits at a gate.", Timeout: 2 * time.Minute,
		Model: model{a}, Tools: []tool.Tool{tool.WithEffect(execution.Idempotent, hold), tool.WithEffect(execution.AtMostOnce, note), panics},
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
	if auth, ok := execution.AuthFrom(ctx); ok {
		req.SetBasicAuth(auth.Actor, auth.Credentials["gate"].Reveal())
	}
	sent, _ := metadata.FromOutgoingContext(turnctx.WithOutgoingCredential(ctx))
	for _, credential := range sent.Get(turnctx.CredentialKey) {
		req.Header.Add(turnctx.CredentialKey, credential)
	}
	resp, err := client.Do(req)
	if err != nil {
		return err
	}
	defer func() { _ = resp.Body.Close() }()
	if resp.StatusCode != http.StatusOK {
		return failure.Newf(failure.ResourceAPI, "slow", "the gate answered %s to %s", resp.Status, what)
	}
	_, err = io.Copy(io.Discard, resp.Body)
	return err
}

// panicWithCredentials panics with a text that contains all credentials that the step knows.
func panicWithCredentials(ctx context.Context) error {
	auth, _ := execution.AuthFrom(ctx)
	panic(auth) //nolint:forbidigo // a test checks that the credentials do not leak
}

// client keeps no connection.
var client = &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}

// model calls a tool and then repeats the tool's result.
type model struct{ caller }

// Name implements llm.Model.
func (model) Name() string { return "test/slow" }

// The text for "tell" is longer than the buffers of a client's stream, so that it blocks if the client does not
// read.
const (
	pieceCount = 4000
	pieceText  = "This is one of very many sentences that come too late. "
)

// Generate implements llm.Model.
func (m model) Generate(ctx context.Context, req llm.Request) iter.Seq2[llm.Delta, error] {
	return func(yield func(llm.Delta, error) bool) {
		last := req.Messages[len(req.Messages)-1]
		if last.Role == conversation.RoleTool {
			if strings.Contains(last.Text, "panicked") {
				yield(llm.Delta{}, panicWithCredentials(ctx))
				return
			}
			if key, breaks := breakKey(req.Messages); breaks {
				if err := m.call(ctx, "repaired", key); err != nil {
					yield(llm.Delta{}, err)
					return
				}
			}
			yield(llm.Delta{Text: "The gate is " + last.Text + "."}, nil)
			return
		}
		verb, key, _ := strings.Cut(last.Text, " ")
		key, _, _ = strings.Cut(key, "\n") // the texts of earlier agents follow
		if first, breaks := breakKey(req.Messages); breaks {
			verb, key = "break", first
		}
		if err := m.call(ctx, "model", key); err != nil {
			yield(llm.Delta{}, err)
			return
		}
		if verb == "fail" {
			auth, _ := execution.AuthFrom(ctx)
			yield(llm.Delta{}, failure.Newf(failure.ResourceAPI, "slow", "the gate does not take %+v", auth.Credentials))
			return
		}
		if verb == "panic" {
			yield(llm.Delta{ToolCalls: []conversation.ToolCall{{ID: "panics-1", Name: "panics", Arguments: fmt.Sprintf(`{"key":%q}`, key)}}}, nil)
			return
		}
		if verb == "break" {
			yield(llm.Delta{ToolCalls: []conversation.ToolCall{{ID: "note-1", Name: "note", Arguments: fmt.Sprintf(`{"key":%q}`, key)}}}, nil)
			return
		}
		if !yield(llm.Delta{Text: "Let me wait. "}, nil) {
			return
		}
		for n := 0; verb == "tell" && n < pieceCount; n++ {
			if !yield(llm.Delta{Text: pieceText}, nil) {
				return
			}
		}
		yield(llm.Delta{ToolCalls: []conversation.ToolCall{{ID: "hold-1", Name: "hold", Arguments: fmt.Sprintf(`{"key":%q}`, key)}}}, nil)
	}
}

// breakKey returns the key of a "break" request in the messages.
func breakKey(messages []conversation.Message) (key string, breaks bool) {
	for _, m := range messages {
		for line := range strings.Lines(m.Text) { // the texts of earlier agents come first
			if text, ok := strings.CutPrefix(line, "break "); ok {
				key, breaks = strings.TrimSpace(text), true
			}
		}
	}
	return key, breaks
}
