// Package scripted provides a model that follows a script, for tests.
package scripted

import (
	"cmp"
	"context"
	"iter"
	"slices"
	"sync"

	"github.com/troupe-dev/troupe/pkg/conversation"
	"github.com/troupe-dev/troupe/pkg/execution"
	"github.com/troupe-dev/troupe/pkg/failure"
	"github.com/troupe-dev/troupe/pkg/llm"
)

// Name is the name of the model.
const Name = "scripted/model"

// Reply is an answer in the script of a Model.
type Reply struct {
	Thought   string   // reasoning before the text
	Deltas    []string // the pieces of the text
	ToolCalls []conversation.ToolCall
	Usage     execution.Usage
	Finish    llm.Finish      // why the reply ends (empty means FinishCalls if there are calls, otherwise FinishStop)
	Err       error           // ends the reply instead of Finish
	Asked     chan<- struct{} // closed when the reply is requested (may be nil)
	Wait      <-chan struct{} // delays the reply until it is closed or ctx ends (may be nil)
}

// Say returns a reply with text only.
func Say(text string) Reply { return Reply{Deltas: []string{text}} }

// Call returns a reply that calls tools.
func Call(calls ...conversation.ToolCall) Reply { return Reply{ToolCalls: calls} }

// Fail returns a reply that ends with err.
func Fail(err error) Reply { return Reply{Err: err} }

// Model answers each request with the next reply of its script. Unlike other models it has state, which is its
// position in the script. It is safe for concurrent use.
type Model struct {
	mu       sync.Mutex
	replies  []Reply
	requests []llm.Request
}

// New returns a model that sends the replies in order. Further requests fail with resource_api.
func New(replies ...Reply) *Model { return &Model{replies: slices.Clone(replies)} }

// Provider returns a provider that opens m under every name that begins with "scripted/".
func (m *Model) Provider() llm.Provider {
	return llm.Provider{Prefix: "scripted", Open: func(string) (llm.Model, error) { return m, nil }}
}

// Name returns "scripted/model".
func (m *Model) Name() string { return Name }

// Requests returns the requests so far, in order.
func (m *Model) Requests() []llm.Request {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.Clone(m.requests)
}

// Generate yields the next reply of the script.
func (m *Model) Generate(ctx context.Context, req llm.Request) iter.Seq2[llm.Delta, error] {
	return func(yield func(llm.Delta, error) bool) {
		reply, err := m.next(req)
		if err != nil {
			yield(llm.Delta{}, err)
			return
		}
		if reply.Asked != nil {
			close(reply.Asked)
		}
		if reply.Wait != nil {
			select {
			case <-reply.Wait:
			case <-ctx.Done():
				yield(llm.Delta{}, ctx.Err())
				return
			}
		}
		if reply.Thought != "" && !yield(llm.Delta{Thought: reply.Thought}, nil) {
			return
		}
		for _, text := range reply.Deltas {
			if !yield(llm.Delta{Text: text}, nil) {
				return
			}
		}
		last := llm.Delta{ToolCalls: slices.Clone(reply.ToolCalls), Usage: reply.Usage}
		if reply.Err == nil {
			last.Finish = cmp.Or(reply.Finish, llm.FinishStop)
			if reply.Finish == "" && len(reply.ToolCalls) > 0 {
				last.Finish = llm.FinishCalls
			}
		}
		if !yield(last, nil) {
			return
		}
		if reply.Err != nil {
			yield(llm.Delta{}, reply.Err)
		}
	}
}

// next records the request and takes the next reply from the script.
func (m *Model) next(req llm.Request) (Reply, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	req.Messages = slices.Clone(req.Messages)
	m.requests = append(m.requests, req)
	if len(m.replies) == 0 {
		return Reply{}, failure.Newf(failure.ResourceAPI, "scripted.Generate",
			"the script ended before request %d", len(m.requests))
	}
	reply := m.replies[0]
	m.replies = m.replies[1:]
	return reply, nil
}
