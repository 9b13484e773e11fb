// Package team provides an agent that is a sequence of three agents. The first and the last run in the agent's own
// process. The second is the slow agent, which runs remotely.
package team

import (
	"context"
	"iter"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/troupe-dev/troupe/pkg/agent"
	"github.com/troupe-dev/troupe/pkg/agent/flow"
	"github.com/troupe-dev/troupe/pkg/client"
	"github.com/troupe-dev/troupe/pkg/llm"
	"github.com/troupe-dev/troupe/test/rig/slow"
)

// Name is the name of the agent.
const Name = "team"

// New returns the agent, which calls the slow agent through the mesh. Its first agent, the opener, reports each
// model call to the gate at the URL. The key is "opener-" followed by the request's key.
func New(mesh *client.Client, gate string) (*agent.Agent, error) {
	opener, err := agent.New(agent.Config{Name: "opener", Model: model(func(ctx context.Context, text string) (string, error) {
		_, key, _ := strings.Cut(text, " ")
		return "I ask the slow one.", reportCall(ctx, gate, "opener-"+key)
	})})
	if err != nil {
		return nil, err
	}
	remote, err := mesh.Agent(slow.Name, agent.Config{})
	if err != nil {
		return nil, err
	}
	closer, err := agent.New(agent.Config{Name: "closer", Model: model(func(_ context.Context, text string) (string, error) {
		_, answer, _ := strings.Cut(text, "What "+slow.Name+" said:\n\n")
		return "It says: " + answer, nil
	})})
	if err != nil {
		return nil, err
	}
	return flow.Sequence(agent.Config{Name: Name, Description: "Asks the slow one.", Timeout: 2 * time.Minute}, opener, remote, closer)
}

// model is a language model that computes its reply from the last message.
type model func(ctx context.Context, text string) (string, error)

// Name implements llm.Model.
func (model) Name() string { return "test/team" }

// Generate implements llm.Model.
func (m model) Generate(ctx context.Context, req llm.Request) iter.Seq2[llm.Delta, error] {
	return func(yield func(llm.Delta, error) bool) {
		text, err := m(ctx, req.Messages[len(req.Messages)-1].Text)
		yield(llm.Delta{Text: text}, err)
	}
}

// reportCall reports a model call to the gate.
func reportCall(ctx context.Context, gate, key string) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, gate+"/model?key="+url.QueryEscape(key), http.NoBody)
	if err != nil {
		return err
	}
	resp, err := httpClient.Do(req)
	if err != nil {
		return err
	}
	return resp.Body.Close()
}

// httpClient keeps no connection.
var httpClient = &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
