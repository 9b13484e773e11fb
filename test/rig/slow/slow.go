// Package slow is an agent that a test catches in the middle of a step: its tool waits at a
// gate until the test opens it. What it says can be long, too.
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

// New returns the agent of an instance, which asks the gate at the URL.
//
// To "hold <key>" it has its tool wait at the gate for the key; to "tell <key>" it says a
// lot first, and to "fail <key>" it fails, telling all that it may of its credentials. To "break
// <key>" it notes the key at the gate, with a tool that may run once, and fails then until the key
// is mended; after that it waits at the gate. To "panic <key>" its tool panics with all that it has,
// and the model with the same when it hears of that. Model and tool show the gate the credential of
// the turn that is called "gate", and the one by which the mesh knows the turn.
func New(gate, instance string) (*agent.Agent, error) {
	a := asker{gate, instance}
	hold, err := tool.Func("hold", "Waits at the gate.", func(ctx context.Context, in struct {
		Key string `json:"key"`
	},
	) (string, error) {
		return "open", a.ask(ctx, "hold", in.Key)
	})
	if err != nil {
		return nil, err
	}
	note, err := tool.Func("note", "Notes the key at the gate.", func(ctx context.Context, in struct {
		Key string `json:"key"`
	},
	) (string, error) {
		return "noted", a.ask(ctx, "note", in.Key)
	})
	if err != nil {
		return nil, err
	}
	blow, err := tool.Func("blow", "Panics.", func(ctx context.Context, in struct {
		Key string `json:"key"`
	},
	) (string, error) {
		return "", errors.Join(a.ask(ctx, "panic", in.Key), panics(ctx))
	})
	if err != nil {
		return nil, err
	}
	return agent.New(agent.Config{
		Name: Name, Description: "Waits until it is let go.", Timeout: 2 * time.Minute,
		Model: model{a}, Tools: []tool.Tool{tool.With(execution.Idempotent, hold), tool.With(execution.AtMostOnce, note), blow},
	})
}

// asker asks the gate.
type asker struct{ gate, instance string }

func (a asker) ask(ctx context.Context, what, key string) error {
	query := url.Values{"key": {key}, "instance": {a.instance}}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, a.gate+"/"+what+"?"+query.Encode(), http.NoBody)
	if err != nil {
		return err
	}
	if auth, ok := execution.AuthFrom(ctx); ok {
		req.SetBasicAuth(auth.Actor, auth.Credentials["gate"].Reveal())
	}
	shown, _ := metadata.FromOutgoingContext(turnctx.Outgoing(ctx))
	for _, credential := range shown.Get(turnctx.CredentialKey) {
		req.Header.Add(turnctx.CredentialKey, credential)
	}
	resp, err := client.Do(req)
	if err != nil {
		return err
	}
	defer func() { _ = resp.Body.Close() }()
	if resp.StatusCode != http.StatusOK {
		return failure.Newf(failure.ResourceAPI, "slow", "the gate says %s to %s", resp.Status, what)
	}
	_, err = io.Copy(io.Discard, resp.Body)
	return err
}

// panics is code that fails with an unexpected panic.
func panics(ctx context.Context) error {
	auth, _ := execution.AuthFrom(ctx)
	panic(auth) //nolint:forbidigo // to see what becomes of what it has
}

// client keeps no connection.
var client = &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}

// model calls the tool, and then says what it was told.
type model struct{ asker }

// Name implements llm.Model.
func (model) Name() string { return "test/slow" }

// The text of "tell" is more than a client's stream holds that is not read.
const (
	pieces = 4000
	piece  = "This is one of very many sentences that come too late. "
)

// Generate implements llm.Model.
func (m model) Generate(ctx context.Context, req llm.Request) iter.Seq2[llm.Delta, error] {
	return func(yield func(llm.Delta, error) bool) {
		last := req.Messages[len(req.Messages)-1]
		if last.Role == conversation.RoleTool {
			if strings.Contains(last.Text, "panicked") {
				yield(llm.Delta{}, panics(ctx))
				return
			}
			if key, breaks := broken(req.Messages); breaks {
				if err := m.ask(ctx, "repaired", key); err != nil {
					yield(llm.Delta{}, err)
					return
				}
			}
			yield(llm.Delta{Text: "The gate is " + last.Text + "."}, nil)
			return
		}
		verb, key, _ := strings.Cut(last.Text, " ")
		key, _, _ = strings.Cut(key, "\n") // behind it is what agents before this one said
		if broke, breaks := broken(req.Messages); breaks {
			verb, key = "break", broke
		}
		if err := m.ask(ctx, "model", key); err != nil {
			yield(llm.Delta{}, err)
			return
		}
		if verb == "fail" {
			auth, _ := execution.AuthFrom(ctx)
			yield(llm.Delta{}, failure.Newf(failure.ResourceAPI, "slow", "the gate does not take %+v", auth.Credentials))
			return
		}
		if verb == "panic" {
			yield(llm.Delta{ToolCalls: []conversation.ToolCall{{ID: "blow-1", Name: "blow", Arguments: fmt.Sprintf(`{"key":%q}`, key)}}}, nil)
			return
		}
		if verb == "break" {
			yield(llm.Delta{ToolCalls: []conversation.ToolCall{{ID: "note-1", Name: "note", Arguments: fmt.Sprintf(`{"key":%q}`, key)}}}, nil)
			return
		}
		if !yield(llm.Delta{Text: "Let me wait. "}, nil) {
			return
		}
		for n := 0; verb == "tell" && n < pieces; n++ {
			if !yield(llm.Delta{Text: piece}, nil) {
				return
			}
		}
		yield(llm.Delta{ToolCalls: []conversation.ToolCall{{ID: "hold-1", Name: "hold", Arguments: fmt.Sprintf(`{"key":%q}`, key)}}}, nil)
	}
}

// broken is the key of a "break" that the user said.
func broken(messages []conversation.Message) (key string, breaks bool) {
	for _, m := range messages {
		for line := range strings.Lines(m.Text) { // among what agents before this one said
			if said, ok := strings.CutPrefix(line, "break "); ok {
				key, breaks = strings.TrimSpace(said), true
			}
		}
	}
	return key, breaks
}
